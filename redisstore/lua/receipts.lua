-- Receipts: charges that may be given back. Those of a key are a list beside it, in the order in
-- which they were made. The stored state of a key that has such a list ends in ' +', so that the
-- fast paths do not apply to it. If a state does not end so, its list is of an earlier state, and
-- of no use.
--
-- An entry of the list is decimal numbers, separated by spaces:
--
--   id until at n followed  whole frac fine
--
-- id is the number that the caller has given the charge, of n units at the instant at. It is final
-- after the instant until. followed is 1 if units were charged after it that nobody can give back.
-- The last three numbers are, for a bucket, the least that the key has owed since the charge, up
-- to the next charge with a receipt; see bucket.lua.
--
-- That of a key that warms up has more numbers after an @:
--
--   first after  whole frac fine
--
-- first is 1 if the key was new before the charge. after is the instant of the first of the units
-- that followed, or - if none did. The others are, for a bucket, what each unit has cost.

-- mark is what a stored state ends in if the key has receipts.
local mark, pcall, made = ' +', redis.pcall, nil

-- unmarked returns the stored text v without its ending: the mark, and for a key that warms up the
-- instant of its first charge and its limit; see warmup.lua. It also returns whether v had the mark,
-- and the other two.
local function unmarked(v)
  local first, limit
  if v:find('@', 1, true) then
    local rest, at, of = match(v, '^(.*) @(-?%d+) (%d+)$')
    v, first, limit = rest or v, numbers(at, of)
  end
  if v:sub(-2) == mark then return v:sub(1, -3), true, first, limit end
  return v, nil, first, limit
end

-- ending returns the ending of s as it is stored.
local function ending(s)
  return (s.marked and mark or '') .. (s.first and format(' @%.0f %.0f', s.first, s.limit) or '')
end

-- receipts returns the functions for keys that have receipts, or get one. They are made when they
-- are first needed.
local function receipts()
  if made then return made end
  local most = 1024

  -- list_of returns the name of the list beside key.
  local function list_of(key) return key .. ';r' end

  -- entry returns the receipt that text is, or nil.
  local function entry(text)
    if type(text) ~= 'string' then return nil end
    local old, aged = match(text, '^([^@]+)(.*)$')
    local id, rest = match(old or '', '^(%d+) (.+)$')
    local ends, at, n, followed, whole, frac, fine = numbers(match(rest or '', '^(-?%d+) (-?%d+) (%d+) ([01]) (%d+) (%d+) (%d+) ?$'))
    if not fine then return nil end
    local e = {id = id, ends = ends, at = at, n = n, followed = followed == 1, low = {whole, frac, fine}}
    if aged ~= '' then
      local first, after, cost = match(aged, '^@([01]) (-?%d*) (.+)$')
      e.first, e.after, e.each = first == '1', tonumber(after), {numbers(match(cost or '', '^(%d+) (%d+) (%d+)$'))}
      if not e.each[3] then return nil end
    end
    return e
  end

  -- text returns the receipt e as it is stored.
  local function text(e)
    local low, followed, each = e.low, e.followed and 1 or 0, e.each
    local v = format('%s %.0f %.0f %.0f %d %.0f %.0f %.0f', e.id, e.ends, e.at, e.n, followed, low[1], low[2], low[3])
    if not each then return v end
    local after = e.after and format('%.0f', e.after) or '-'
    return format('%s @%d %s %.0f %.0f %.0f', v, e.first and 1 or 0, after, each[1], each[2], each[3])
  end

  -- newest returns the newest receipt of s. If there is none, or another kind of value is where
  -- they should be, s has no receipts any more.
  local function newest(s)
    if s.all then return s.all[#s.all] end
    if s.marked and not s.tail then
      s.tail = entry(pcall('LINDEX', list_of(s.key), -1))
      s.marked = s.tail and true
    end
    return s.marked and s.tail
  end

  -- every returns all receipts of s, the oldest first.
  local function every(s)
    if not s.all then
      local texts = s.marked and pcall('LRANGE', list_of(s.key), 0, -1) or {}
      s.all = {}
      for i, v in ipairs(texts) do s.all[i] = entry(v) end
      s.marked = #s.all > 0 and #s.all == #texts
    end
    return s.marked and s.all or {}
  end

  -- charge notes that n units are charged to s at now. a.receipt is their receipt, or nil. The key
  -- then owes low.
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

  -- push appends the receipts in all, from number i on, to list.
  local function push(list, all, i)
    for first = i, #all, 1000 do
      local texts = {}
      for j = first, min(first + 999, #all) do texts[#texts + 1] = text(all[j]) end
      call('RPUSH', list, unpack(texts))
    end
  end

  -- save stores what has changed of the receipts of s. pad is as for expiry.
  local function save(s, now, pad)
    local list, e = list_of(s.key), s.issued
    if s.dropped then
      call('DEL', list)
    elseif s.rescaled then
      local left = call('PTTL', list)
      call('DEL', list)
      push(list, s.all, 1)
      if left > 0 then call('PEXPIRE', list, left) end
    elseif s.touched then
      call('LSET', list, -1, text(s.tail))
    end
    if not e then return end
    for _ = 1, 2 do -- no more, so that a charge does not take long because of the receipts of others
      local oldest = entry(call('LINDEX', list, 0))
      if oldest and oldest.ends < now then call('LPOP', list) end
    end
    if call('RPUSH', list, text(e)) > most then call('LPOP', list) end
    local ms = tonumber(expiry(e.ends - now, pad))
    if call('PTTL', list) < ms then call('PEXPIRE', list, format('%.0f', ms)) end
  end

  made = {list_of = list_of, text = text, newest = newest, every = every, charge = charge, push = push, save = save}
  return made
end
