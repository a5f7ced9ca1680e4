-- Gives back units that were charged.
--
-- KEYS: the keys, then the sets of their receipts. ARGV: one argument for start.lua; then for
-- each key: kind; the number of the receipt of the charge, or 0; how many units were charged, and
-- how many of them stay charged; and for a charge that was denied by another part of its
-- decision, or that was taken ahead: its instant, and the stored state before and after it, as
-- take.lua returns them. These three may be ''.
--
-- For a hold of held.lua, the number of units that stay charged is 0 if the hold ends. Otherwise it
-- goes on, and in place of the instant is the longest time of a hold. The script returns 1 if a hold that
-- was to go on is over, and otherwise 0.
--
-- If the state has not changed since the charge, it becomes the state before the charge. If it has
-- changed, a charge with a receipt is settled: the state is then as if the charge had never been made.
-- A charge whose receipt is gone is final. For a charge that never had a receipt, the units that have
-- not yet drained or left the window are removed.

local now = s * 1e6 + us

-- give_back gives back a charge of n tokens that was made at instant.
function bucket.give_back(s, instant, n)
  local still = drained(s, {n, 0, 0}, s.last - instant)
  s.debt = minus(s, s.debt, still)
  if s.queue then s.queue = minus(s, s.queue, still) end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end

-- settle reduces the debt of s by debt, for units that are given back and have cost paid. The queue
-- shrinks only if no unit was charged after them, because later requests have got their Delay already.
function bucket.settle(s, _, _, debt, paid, alone)
  s.debt = minus(s, s.debt, debt)
  if s.queue and alone then s.queue = minus(s, s.queue, paid) end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end

-- settle gives back n units of a charge at the instant at.
function fixed.settle(s, at, n)
  local _, offset = divide(s.last, s.per)
  if s.last - at <= offset then s.used = max(s.used - n, 0) end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end
fixed.give_back = fixed.settle

function counter.settle(s, at, n)
  local _, offset = divide(s.last, s.per)
  local ago = s.last - at
  if ago <= offset then
    s.cur = max(s.cur - n, 0)
  elseif ago - offset <= s.per then
    s.prev = max(s.prev - n, 0)
  end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end
counter.give_back = counter.settle

-- grow makes s as old as the charge after that of e, or new if there is none. e is the receipt of the
-- first charge of s, which is given back completely. later is the receipt after it, or nil.
local function grow(s, list, e, later)
  local first = e.after
  if not e.followed and later then
    first, later.first = later.at, true
    receipts().replace(list, later)
  end
  if s.first == e.at then s.first = first end
end

-- settle changes the charge of s with this id to the number of units that stay charged. It removes a
-- member of the set before it stores anything: once a script has written, Redis accepts any command
-- although it has no memory.
local function settle(s, kind, id, stay)
  local list, tail = receipts().list_of(s.key), receipts().newest(s)
  local e = tail and receipts().find(list, id)
  if not e or e.ends < now then return end
  local before, later
  if s.gain or e.each or e.pos == tail.pos then -- of others, it does not matter what was charged after them
    before, later = receipts().older(list, e.pos), e.pos < tail.pos and receipts().newer(list, e.pos) or nil
  end
  local n = max(e.n - stay, 0)
  local paid = s.gain and e.each and times(s, e.each, n) or {n, 0, 0}
  local debt, alone = paid, not later and not e.followed
  call('ZREM', list, id)
  if s.gain then
    layers.flush(s, list)
    debt = layers.take(s, list, e.pos, paid)
  end
  receipts().remove(s, list, e, later)
  if e.first and stay == 0 then grow(s, list, e, later) end
  if before then
    if not before.followed then before.after = stay > 0 and e.at or e.after end
    before.followed = before.followed or e.followed or stay > 0
    receipts().replace(list, before)
  elseif e.pos == tail.pos then
    s.marked = nil
    call('DEL', list)
  end
  s.settled = e
  kind.settle(s, e.at, n, debt, paid, alone)
end

-- restore gives key the value that it had before a charge of n units at instant. before is the stored
-- state and, if that is marked, the flags of the newest receipt at that time.
local function restore(s, kind, id, n, instant, before)
  local list, state, followed, after = receipts().list_of(s.key), match(before, '^([^|]*)|?(%d?) ?(.*)$')
  if followed == '' then
    call('DEL', list)
  else
    local e = receipts().newest(s)
    if id ~= '0' then
      receipts().remove(s, list, e)
      e = receipts().older(list, e.pos)
    end
    if s.gain then layers.unflush(s, list) end
    if e then -- the receipt may have been dropped as final
      e.followed, e.after = followed == '1', tonumber(after)
      receipts().replace(list, e)
    end
  end
  if before == '' then
    call('DEL', s.key)
  elseif kind.encode then -- a log
    s.marked = followed ~= ''
    s.first, s.limit = numbers(match(state, ' @(-?%d+) (%d+)'))
    log.give_back(s, instant, n, tonumber(match(before, '^%S+ (%S+)')))
  else
    call('SET', s.key, state, 'KEEPTTL')
  end
end

-- newest_is reports whether the newest receipt of s has this number, or no number is given.
-- Charges and settlements of one instant may lead back to the same state, with other receipts.
local function newest_is(s, id)
  if id == '0' then return true end
  local e = receipts().newest(s)
  return e and e.id == id
end

local over = 0
for i = 1, #KEYS / 2 do
  local v = 7 * i - 6
  local kind, id, n, stay, instant, before, after =
    kinds[ARGV[v + 1]], ARGV[v + 2], ARGV[v + 3] + 0, ARGV[v + 4] + 0, tonumber(ARGV[v + 5]), ARGV[v + 6], ARGV[v + 7]
  local s = kind.load(KEYS[i])
  if kind.finish then
    over = max(over, kind.finish(s, id, n, stay > 0 and instant, now, tonumber(pad), before, after))
  elseif s and after ~= '' and after == (kind.encode and kind.encode(s) or call('GET', KEYS[i])) and newest_is(s, id) then
    restore(s, kind, id, n, instant, before)
  elseif s and id ~= '0' then
    if s.marked then settle(s, kind, id, stay) end
  elseif s and s.last >= instant then
    kind.give_back(s, instant, n)
  end
end
