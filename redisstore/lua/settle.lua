-- Gives back units that were charged.
--
-- KEYS: the keys, then the lists of their receipts. ARGV: one argument for start.lua; then for
-- each key: kind; the number of the receipt of the charge, or 0; how many units were charged, and
-- how many of them stay charged; and for a charge that was denied by another part of its
-- decision, or that was taken ahead: its instant, and the stored state before and after it, as
-- take.lua returns them. These three may be ''.
--
-- A state that is still as the charge has left it becomes what it was before the charge. From
-- a state that has changed, a charge with a receipt is settled: the state is then as if the charge
-- had never been made. A charge that has no receipt any more is final. For a charge that never
-- had one, what has not yet drained or left is taken off.

local now = s * 1e6 + us

-- least returns the lesser of two levels.
local function least(a, b) return below(a, b) and a or b end

-- minus returns the level a minus b, or zero if b is more than a.
local function minus(s, a, b)
  local whole, frac, fine = a[1] - b[1], a[2] - b[2], a[3] - b[3]
  if fine < 0 then frac, fine = frac - 1, fine + grain(s.gain) end
  if frac < 0 then whole, frac = whole - 1, frac + s.unit end
  if whole < 0 then return {0, 0, 0} end
  return {whole, frac, fine}
end

-- give_back gives back a charge of n tokens that was made at instant.
function bucket.give_back(s, instant, n)
  local still = drained(s, {n, 0, 0}, s.last - instant)
  s.debt = minus(s, s.debt, still)
  if s.queue then s.queue = minus(s, s.queue, still) end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end

-- settle takes debt off what s owes, for units that are given back and have cost paid. The queue
-- shrinks only if no unit came after them: a request that was told its Delay keeps its place.
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

-- moved is how many entries are changed at most when units are given back.
local moved = 4096

-- settle takes n units off the entry at instant, if the log still has that and not too many later
-- ones. If clock is a number, the clock of the log goes back to that.
function log.settle(s, instant, n, clock)
  local i = s.len > 0 and first(s, 0, function(i) return at(s, i) >= instant end)
  if i and s.len - 1 - i <= moved and at(s, i) == instant and total(s, i) - total(s, i - 1) >= n then
    local rest = call('LRANGE', s.key, 1 + 2 * (s.drop + i), -1)
    local gone = rest[2] - total(s, i - 1) == n and 2 or 0
    call('LTRIM', s.key, 0, 2 * (s.drop + i))
    for j = gone + 1, #rest, 1000 do
      local some = {}
      for k = j, min(j + 999, #rest) do some[#some + 1] = k % 2 == 1 and rest[k] or format('%.0f', rest[k] - n) end
      call('RPUSH', s.key, unpack(some))
    end
  end
  if type(clock) == 'number' then s.clock = clock end
  call('LSET', s.key, 0, header(s))
end
log.give_back = log.settle

-- save_settled stores the receipts of s, of which those before the i-th have not changed. It does
-- so before the state is stored: once a script has written, Redis accepts a SET without memory.
local function save_settled(s, i)
  local list = receipts().list_of(s.key)
  if #s.all == 0 then
    s.marked = nil
    return call('DEL', list)
  end
  local left = call('PTTL', list)
  if i == 1 then call('DEL', list) else call('LTRIM', list, 0, i - 2) end
  receipts().push(list, s.all, i)
  if i == 1 and left > 0 then call('PEXPIRE', list, left) end
end

-- grow makes s, whose first charge was that of the i-th receipt, of which nothing stays, as old as
-- its next charge, or new if there is none.
local function grow(s, all, i)
  local e, later = all[i], all[i + 1]
  local first = e.after
  if not e.followed and later then first, later.first = later.at, true end
  if s.first == e.at then s.first = first end
end

-- settle makes the charge of s with this id one of as many units as stay charged.
local function settle(s, kind, id, stay)
  local all, i = receipts().every(s), nil
  for j = #all, 1, -1 do
    if all[j].id == id then
      i = j
      break
    end
  end
  local e = i and all[i]
  if not e or e.ends < now then return end
  local n = max(e.n - stay, 0)
  local paid = s.gain and e.each and times(s, e.each, n) or {n, 0, 0}
  local debt, alone = paid, i == #all and not e.followed
  if e.first and stay == 0 then grow(s, all, i) end
  for j = i, #all do debt = least(all[j].low, debt) end
  for j = i + 1, #all do all[j].low = minus(s, all[j].low, debt) end
  local before = all[i - 1]
  if before then
    before.low = least(minus(s, e.low, debt), before.low)
    if not before.followed then before.after = stay > 0 and e.at or e.after end
    before.followed = before.followed or e.followed or stay > 0
  end
  table.remove(all, i)
  save_settled(s, max(i - 1, 1))
  kind.settle(s, e.at, n, debt, paid, alone)
end

-- restore makes key what it was before a charge of n units at instant. before is the stored state,
-- and if that is marked, what the newest receipt was.
local function restore(s, kind, id, n, instant, before)
  local list, state, tail = receipts().list_of(s.key), match(before, '^([^|]*)|?(.*)$')
  if tail == '' then
    call('DEL', list)
  else
    if id ~= '0' then call('RPOP', list) end
    if call('LLEN', list) > 0 then call('LSET', list, -1, tail) end -- it may have been dropped as final
  end
  if before == '' then
    call('DEL', s.key)
  elseif kind.encode then -- a log
    s.marked = tail ~= ''
    s.first, s.limit = numbers(match(state, ' @(-?%d+) (%d+)'))
    log.settle(s, instant, n, tonumber(match(before, '^%S+ (%S+)')))
  else
    call('SET', s.key, state, 'KEEPTTL')
  end
end

-- newest_is reports whether the newest receipt of s is that of this number, or there is no number.
-- Charges and settlements of one instant may lead back to the same state, with other receipts.
local function newest_is(s, id)
  if id == '0' then return true end
  local e = receipts().newest(s)
  return e and e.id == id
end

for i = 1, #KEYS / 2 do
  local v = 7 * i - 6
  local kind, id, n, stay, instant, before, after =
    kinds[ARGV[v + 1]], ARGV[v + 2], ARGV[v + 3] + 0, ARGV[v + 4] + 0, tonumber(ARGV[v + 5]), ARGV[v + 6], ARGV[v + 7]
  local s = kind.load(KEYS[i])
  if s and after ~= '' and after == (kind.encode and kind.encode(s) or call('GET', KEYS[i])) and newest_is(s, id) then
    restore(s, kind, id, n, instant, before)
  elseif s and id ~= '0' then
    if s.marked then settle(s, kind, id, stay) end
  elseif s and s.last >= instant then
    kind.give_back(s, instant, n)
  end
end
