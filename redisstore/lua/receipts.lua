-- Receipts: records of charges that may be given back. A sorted set of its own holds the receipts of a
-- key. The stored state of a key with such a set ends in ' +', so that the fast paths do not apply to
-- it. If a state does not end so, its set belongs to an earlier state and is ignored.
--
-- A receipt has a position: 1, 2, 3 and so on, in the order of the charges. It consists of two
-- members of the set. The score of the first is the position, and the score of the second is minus
-- the position:
--
--   id
--   position:until at n followed
--
-- id is the number that the caller has given to the charge. The charge was of n units, at the instant
-- at, and can be given back up to the instant until. followed is 1 if units without a receipt were
-- charged after it and before the next receipt. layers.lua adds members for the debts of buckets.
--
-- The receipt of a key that warms up has more numbers after an @:
--
--   first after  whole frac fine
--
-- first is 1 if the key was new before the charge. after is the instant of the first charge without a
-- receipt that followed, or - if none did. For a bucket, whole, frac and fine are what each unit has
-- cost. If the key did not have its full limit yet, there are two numbers in their place: the limit that
-- it had, and the full limit. A change of the rate replaces these two by whole, frac and fine.

-- mark is the end of the stored state of a key that has receipts.
local mark, pcall, made = ' +', redis.pcall, nil

-- unmarked returns the stored text v without its ending: the mark and, for a key that warms up, the
-- instant of its first charge and its limit; see warmup.lua. It also returns whether v had the mark,
-- the instant and the limit.
local function unmarked(v)
  local first, limit
  if v:find('@', 1, true) then
    local rest, at, of = match(v, '^(.*) @(-?%d+) (%d+)$')
    v, first, limit = rest or v, numbers(at, of)
  end
  if v:sub(-2) == mark then return v:sub(1, -3), true, first, limit end
  return v, nil, first, limit
end

-- ending returns the end of the text that is stored for s: the mark, and the numbers of a key that
-- warms up.
local function ending(s)
  return (s.marked and mark or '') .. (s.first and format(' @%.0f %.0f', s.first, s.limit) or '')
end

-- layers has the functions of layers.lua, if the script contains it.
local layers

-- whole writes a whole number.
local function whole(n) return format('%.0f', n) end

-- receipts returns the functions for keys that have receipts or get one. It defines them when it is
-- first called, because most scripts do not need them.
local function receipts()
  if made then return made end
  local most, last = 1024, 1125899906842624

  -- list_of returns the name of the sorted set with the receipts of key.
  local function list_of(key) return key .. ';r' end

  -- entry reads the text of a receipt, and returns the receipt, or nil if the text is not valid.
  local function entry(text)
    if type(text) ~= 'string' then return nil end
    local old, aged = match(text, '^([^@]+)(.*)$')
    local pos, ends, at, n, followed = numbers(match(old or '', '^(%d+):(-?%d+) (-?%d+) (%d+) ([01]) ?$'))
    if not followed then return nil end
    local e = {stored = text, pos = pos, ends = ends, at = at, n = n, followed = followed == 1}
    if aged ~= '' then
      local first, after, cost = match(aged, '^@([01]) (-?%d*) (.+)$')
      e.first, e.after, e.each = first == '1', tonumber(after), {numbers(match(cost or '', '^(%d+) (%d+) (%d+)$'))}
      if not e.each[1] then e.each = {numbers(match(cost or '', '^(%d+) (%d+)$'))} end
      if not e.each[1] then return nil end
    end
    return e
  end

  -- text returns the text that is stored for the receipt e.
  local function text(e)
    local each, v = e.each, format('%.0f:%.0f %.0f %.0f %d', e.pos, e.ends, e.at, e.n, e.followed and 1 or 0)
    if not each then return v end
    local after = e.after and whole(e.after) or '-'
    v = format('%s @%d %s %.0f %.0f', v, e.first and 1 or 0, after, each[1], each[2])
    return each[3] and v .. ' ' .. whole(each[3]) or v
  end

  -- of returns the receipt with this id and position.
  local function of(list, id, pos)
    local e = pos and entry(call('ZRANGEBYSCORE', list, whole(-pos), whole(-pos))[1])
    if e then e.id = id end
    return e
  end

  -- find returns the receipt with this id, or nil.
  local function find(list, id) return of(list, id, tonumber(call('ZSCORE', list, id) or nil)) end

  -- older returns the newest of the receipts before the position pos, or nil.
  local function older(list, pos)
    local found = pcall('ZREVRANGEBYSCORE', list, '(' .. whole(pos), 1, 'WITHSCORES', 'LIMIT', 0, 1)
    return of(list, found[1], tonumber(found[2]))
  end

  -- newer returns the oldest of the receipts after the position pos, or nil.
  local function newer(list, pos)
    local found = call('ZRANGEBYSCORE', list, '(' .. whole(pos), whole(last), 'WITHSCORES', 'LIMIT', 0, 1)
    return of(list, found[1], tonumber(found[2]))
  end

  -- newest returns the newest receipt of s. If the set is missing or is no sorted set, s counts as
  -- a state without receipts.
  local function newest(s)
    if s.marked and not s.tail then
      s.tail = older(list_of(s.key), last)
      s.marked = s.tail and true
    end
    return s.marked and s.tail
  end

  -- charge records in the receipts of s that n units are charged at the instant now. a.receipt is the
  -- receipt of this charge, or nil if it gets none. low is the debt of the key after the charge.
  local function charge(a, s, now, n, low)
    local before, e = newest(s), a.receipt
    if not e then
      if before and not before.followed then before.followed, before.after, s.touched = true, now, true end
      return
    end
    if not s.marked then s.dropped = true end
    e.at, e.n, e.low = now, n, low
    s.marked, s.issued = true, e
  end

  -- replace stores the receipt e, which has changed.
  local function replace(list, e)
    local v = text(e)
    if v == e.stored then return end
    call('ZREM', list, e.stored)
    call('ZADD', list, whole(-e.pos), v)
    e.stored = v
  end

  -- remove removes the receipt e of s. later is the receipt after it, or nil.
  local function remove(s, list, e, later)
    call('ZREM', list, e.id, e.stored)
    if s.gain then layers.lift(s, list, e.pos, later and later.pos) end
  end

  -- drop removes the oldest receipt of s, if its term is over at now or the argument always is true. The charge
  -- of the receipt is then final: its units cannot be given back any more.
  local function drop(s, list, now, always)
    local e = newer(list, 0)
    if not e or not always and e.ends >= now then return end
    if s.gain then layers.flush(s, list) end
    remove(s, list, e, newer(list, e.pos))
  end

  -- save writes the receipts of s that this call has changed. pad is the pad of the function
  -- expiry.
  local function save(s, now, pad)
    local list, e, tail, least = list_of(s.key), s.issued, newest(s), 0
    if s.dropped then
      if s.returnable then least = call('PTTL', list) end -- the receipts may be stored again
      call('DEL', list)
      tail = nil
    elseif tail then
      if s.gain then layers.save(s, list) end
      if s.touched then replace(list, tail) end
    end
    if not e then return end
    for _ = 1, 2 do -- drop at most 2, so that a charge is fast even if many receipts are final
      if tail then drop(s, list, now) end
    end
    e.pos = (tail and tail.pos or 0) + 1
    call('ZADD', list, whole(e.pos), e.id, whole(-e.pos), text(e))
    if s.gain then layers.add(s, list, e.pos, e.low) end
    if call('ZCOUNT', list, 1, whole(last)) > most then drop(s, list, now, true) end
    local ms = max(expiry(e.ends - now, pad), least)
    if call('PTTL', list) < ms then call('PEXPIRE', list, whole(ms)) end
  end

  -- flags returns a text with the parts of the receipt e that a later charge without a receipt
  -- changes.
  local function flags(e) return format('%d %s', e.followed and 1 or 0, e.after and whole(e.after) or '-') end

  -- all returns a text with all members of the set of s, each after its score. refill stores them again.
  local function all(s)
    local found, lines = call('ZRANGEBYSCORE', list_of(s.key), '-inf', '+inf', 'WITHSCORES'), {}
    for i = 1, #found, 2 do lines[#lines + 1] = found[i + 1] .. ' ' .. found[i] .. '\n' end
    return table.concat(lines)
  end

  local function refill(list, text)
    local ms = call('PTTL', list)
    call('DEL', list)
    for score, member in text:gmatch('(%S+) ([^\n]+)\n') do call('ZADD', list, score, member) end
    if ms > 0 then call('PEXPIRE', list, whole(ms)) end
  end

  made = {
    all = all, refill = refill, list_of = list_of, find = find, older = older, newer = newer, newest = newest, charge = charge,
    entry = entry, replace = replace, remove = remove, save = save, flags = flags,
  }
  return made
end
