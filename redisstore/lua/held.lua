-- Work in flight: a granted request holds its units until somebody ends the hold, or until its time
-- is over.
--
-- A state is stored as decimal numbers, separated by spaces:
--
--   per  seconds micros  held
--
-- per is the longest time of a hold, according to the rate at the last write. seconds and micros are
-- the instant of the last charge. held is the sum of the units of all holds of the key. The holds are
-- members of a sorted set, whose name is the one that the receipts of other algorithms have. The score
-- of a member is the instant at which the hold is over, if nobody ends it before. The member is
--
--   id:n
--
-- id is the number that the caller has given to the hold, and n is how many units it holds.

local held = {}

-- most_holds is the largest number of holds of a key.
local most_holds = 65536

-- provisional is how many microseconds a hold lasts while another slot may still deny the request.
local provisional = 1e6

local function holds_of(s) return s.key .. ';r' end

-- last_hold returns when all holds are over, or nil if there are none.
local function last_hold(s) return tonumber(call('ZREVRANGEBYSCORE', holds_of(s), '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) end

function held.encode(s)
  local seconds, micros = divide(s.last, 1e6)
  return format('%.0f %.0f %.0f %.0f', s.per, seconds, micros, s.used)
end

function held.fresh(c, now, key) return {key = key, per = c[2], last = now, used = 0, open = 0, new = true} end

function held.load(key)
  local v = call('GET', key)
  if not v then return nil end
  local s, seconds, micros = {key = key}
  s.per, seconds, micros, s.used = numbers(match(v, '^(%d+) (-?%d+) (%d+) (%d+)$'))
  if not s.per or s.per < 1 then return corrupt(key) end
  s.last = instant(seconds, micros) or corrupt(key)
  s.open, s.ends = call('ZCOUNT', holds_of(s), '-inf', '+inf'), last_hold(s)
  if s.open == 0 then s.used = 0 end
  return s
end

-- heal moves a state whose time is far ahead of now to now: all its holds then end when per has
-- passed since now.
function held.heal(s, now)
  if s.last - now <= 2 * s.per then return false end
  s.last, s.ends, s.moved = now, s.open > 0 and now + s.per or nil, true
  return true
end

-- adopt stores in s the longest time of a hold that c says, and subtracts the units of the holds that
-- are over. These holds stay in the set until a write removes them, and each look at the key goes
-- through them again. adopt returns true if even a denial must remove them: if there are at least 64 of
-- them, or if all holds are over.
function held.adopt(s, c, now)
  now, s.per = max(now, s.last), c[2]
  if s.passed or s.open == 0 or s.moved then return false end
  s.passed = now
  if s.ends <= now then
    s.all, s.used, s.open, s.ends = true, 0, 0, nil
    return true
  end
  local gone = 0
  repeat
    local some = call('ZRANGEBYSCORE', holds_of(s), '-inf', format('%.0f', now), 'LIMIT', gone, 1000)
    for _, member in ipairs(some) do s.used = s.used - match(member, ':(%d+)$') end
    gone = gone + #some
  until #some < 1000
  s.gone, s.open = gone > 0, s.open - gone
  return gone >= 64
end

-- free_at returns when the given number of units will have come back, if nobody ends a hold before.
-- It looks only at the next 64 holds. If these have fewer units, it returns when all holds are
-- over.
local function free_at(s, units)
  if s.moved then return s.ends end
  local from = '(' .. format('%.0f', s.passed or s.last)
  local some = call('ZRANGEBYSCORE', holds_of(s), from, '+inf', 'WITHSCORES', 'LIMIT', 0, 64)
  for i = 1, #some, 2 do
    units = units - match(some[i], ':(%d+)$')
    if units <= 0 then return tonumber(some[i + 1]) end
  end
  return s.ends
end

function held.look(a, s, now, want)
  local limit = a.config[1]
  a.left, a.retry, a.delay, a.reset = max(limit - s.used, 0), 0, 0, 0
  if s.open >= most_holds then a.left = 0 end
  if s.used > 0 then a.reset = s.ends - now end
  if want > limit then
    a.retry = -1
  elseif want > a.left then
    a.retry = free_at(s, max(s.used + want - limit, 1)) - now
  end
end

function held.charge(a, s, now, n)
  s.last, s.used, s.open, s.issued = now, s.used + n, s.open + 1, a.receipt
  s.ends = max(now + s.per, s.ends or 0)
  if s.issued then s.issued.n = n end
  a.left, a.reset = a.left - n, s.ends - now
end

-- hold writes a hold of n units with the number id, which is over at the instant ends.
local function hold(s, id, n, ends)
  call('ZADD', holds_of(s), format('%.0f', ends), id .. ':' .. format('%.0f', n))
end

-- rest writes the state s. Its key expires when all holds are over.
local function rest(s, now, pad)
  local ms = expiry(max((last_hold(s) or now) - now, 1), pad)
  call('SET', s.key, held.encode(s), 'PX', ms)
  call('PEXPIRE', holds_of(s), ms)
end

function held.save(_, s, now, pad)
  local list, e = holds_of(s), s.issued
  if s.new or s.all then
    call('DEL', list)
  elseif s.gone then
    call('ZREMRANGEBYSCORE', list, '-inf', format('%.0f', s.passed))
  end
  if s.moved then
    for _, member in ipairs(call('ZRANGEBYSCORE', list, '-inf', '+inf')) do call('ZADD', list, format('%.0f', s.ends), member) end
  end
  if e then hold(s, e.id, e.n, s.returnable and s.last + min(s.per, provisional) or s.ends) end
  rest(s, now, pad)
end

-- finish ends the hold of s with the number id and n units. If per is a number, finish does not end the hold
-- but makes it last for per from now, and returns 1 if the hold is over already. If another slot has denied
-- the request, the arguments before and after have the stored state before and after the charge. If the
-- stored state is still the one in after, finish stores the one in before again. So not even the time of s,
-- which the charge has moved, stays changed.
function held.finish(s, id, n, per, now, pad, before, after)
  local member = s and id .. ':' .. format('%.0f', n)
  local ends = s and tonumber(call('ZSCORE', holds_of(s), member) or nil)
  if not ends or per and ends <= max(now, s.last) then return per and 1 or 0 end
  call('ZREM', holds_of(s), member)
  if after ~= '' and after == call('GET', s.key) then
    if before == '' then call('DEL', s.key, holds_of(s)) else call('SET', s.key, before, 'KEEPTTL') end
    return 0
  elseif per then
    s.last, s.per = max(now, s.last), per
    hold(s, id, n, max(s.last + per, last_hold(s) or 0))
  else
    s.used = s.used - n
  end
  rest(s, now, pad)
  return 0
end

kinds.h = held
