-- Gives back units that were charged.
--
-- KEYS: the keys, then the sets of their receipts. ARGV: one argument for start.lua; then for each
-- key: kind; the number of the receipt of the charge, or 0; how many units were charged, and how
-- many of them stay charged; then the instant of the charge, and the stored state before and after
-- it, as take.lua returns them. These three are given if another slot has denied the request, or if
-- the units were taken ahead for later requests. They may be ''.
--
-- For a hold of held.lua, the number of units that stay charged is 0 if the hold ends. Otherwise the hold
-- is prolonged, and the longest time of a hold is given in place of the instant. The script returns 1 if
-- a hold that is to be prolonged is over already, and otherwise 0.
--
-- If the state has not changed since the charge, the state before the charge is stored again. If it
-- has changed and the charge has a receipt, the receipt says what to subtract, so that the state is as
-- if the charge had never been made. If the receipt is gone, the units stay charged. If the charge
-- never had a receipt, the units that have not yet drained or left the window are subtracted.

local now = s * 1e6 + us

-- give_back gives back a charge of n tokens that was made at instant.
function bucket.give_back(s, instant, n)
  local still = drained(s, {n, 0, 0}, s.last - instant)
  s.debt = minus(s, s.debt, still)
  if s.queue then s.queue = minus(s, s.queue, still) end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end

-- settle is called when units are given back. The argument paid is what these units have cost, and the
-- argument debt is how much of this cost s still owes. settle subtracts debt from the debt of s. The
-- argument alone is true if nothing was charged after these units. Only then does settle subtract paid
-- from the queue. Otherwise later requests already wait for the Delay that they were told.
function bucket.settle(s, _, _, debt, paid, alone)
  s.debt = minus(s, s.debt, debt)
  if s.queue and alone then s.queue = minus(s, s.queue, paid) end
  call('SET', s.key, s.encode(s), 'KEEPTTL')
end

-- settle gives back n units of a charge that was made at the instant at, if that instant is in the
-- window that s counts.
function fixed.settle(s, at, n)
  if at >= fixed.span(s, nil, s.last) then s.used = max(s.used - n, 0) end
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

-- grow is called when all units of the first charge of a key that warms up are given back. e is the
-- receipt of this charge, and later is the next receipt, or nil. The limit of the key then counts as
-- growing since the next charge; if there is none, the key is new.
local function grow(s, list, e, later)
  local first = e.after
  if not e.followed and later then
    first, later.first = later.at, true
    receipts().replace(list, later)
  end
  if s.first == e.at then s.first = first end
end

-- settle changes the charge of s with this id to the number of units that stay charged. Its first
-- write removes a member of the set: after this write, Redis accepts the other commands of the
-- script even if it has no memory left.
local function settle(s, kind, id, stay)
  local list, tail = receipts().list_of(s.key), receipts().newest(s)
  local e = tail and receipts().find(list, id)
  if not e or e.ends < now then return end
  local before, later
  if s.gain or e.each or e.pos == tail.pos then -- for all other receipts, it does not matter what was charged after them
    before, later = receipts().older(list, e.pos), e.pos < tail.pos and receipts().newer(list, e.pos) or nil
  end
  local n = max(e.n - stay, 0)
  local each, paid = s.gain and e.each and weight_of(s, e), {n, 0, 0}
  if each then paid = minus(s, cost(s, each, e.n), cost(s, each, e.n - n)) end
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

-- relist stores the elements in text as the list of key, which lives on for as long as before.
local function relist(key, text)
  local ms, some = call('PTTL', key), {}
  call('DEL', key)
  for element in text:gmatch('[^*\n]+') do
    some[#some + 1] = element
    if #some == 1000 then
      call('RPUSH', key, unpack(some))
      some = {}
    end
  end
  if some[1] then call('RPUSH', key, unpack(some)) end
  if ms > 0 then call('PEXPIRE', key, whole(ms)) end
end

-- restore stores the state that the key had before a charge of n units at the given instant. before
-- is the text of this state and, if the key had receipts, the flags of its newest receipt at that
-- time. If the charge has converted the receipts to another rate, all of them follow.
local function restore(s, kind, id, n, instant, before)
  local list, state, followed, after, all = receipts().list_of(s.key), match(before, '^([^|]*)|?(%d?) ?([^|]*)|?(.*)$')
  if all and all ~= '' then
    receipts().refill(list, all)
  elseif followed == '' then
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
  elseif state:sub(1, 1) == '*' then -- all of a log
    relist(s.key, state)
  elseif kind.encode then -- a log
    s.marked = followed ~= ''
    s.first, s.limit = numbers(match(state, ' @(-?%d+) (%d+)'))
    log.give_back(s, instant, n, tonumber(match(before, '^%S+ (%S+)')))
  else
    call('SET', s.key, state, 'KEEPTTL')
  end
end

-- newest_is reports whether the newest receipt of s has the number id. It returns true if id is
-- '0'. The stored state alone does not show this: several charges and returns at one instant may
-- lead back to the same state, with other receipts.
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
