-- Exact integer arithmetic on doubles, which hold every integer up to 2^53.
--
-- Instants are microseconds since the Unix epoch. Counts, gains, units and lengths of windows are
-- at most 2^50; the store refuses larger ones. A product of two such numbers may not fit into a
-- double. It is then never computed as a whole: muldiv divides while it multiplies, bit by bit.

local floor, fmod, max, min = math.floor, math.fmod, math.max, math.min
local format, match, call = string.format, string.match, redis.call
local EXACT = 9007199254740992

-- divide returns a/b, rounded down, and the remainder. b is positive.
local function divide(a, b)
  local rest = fmod(a, b) + 0 -- +0, because -0 is written with its sign
  if rest < 0 then rest = rest + b end
  return (a - rest) / b, rest
end

-- muldiv returns a*b/c, rounded down, and the remainder. c is at most 2^51. A quotient
-- above 2^53 is not exact.
local function muldiv(a, b, c)
  local product = a * b
  if product < EXACT then return divide(product, c) end
  local large = max(a, b)
  b = min(a, b)
  local qa, ra = divide(large, c)
  local q, r = 0, 0
  local _, bits = math.frexp(b)
  local bit = 2 ^ (bits - 1)
  while bit >= 1 do
    q, r = 2 * q, 2 * r
    if b >= bit then b, q, r = b - bit, q + qa, r + ra end
    if r >= c then q, r = q + 1, r - c end
    if r >= c then q, r = q + 1, r - c end -- 2r + ra was less than 3c
    bit = bit / 2
  end
  return q, r
end

-- less reports whether a*b < c*d. If the rounded products differ, they are in the right
-- order. If they are equal, the exact products are compared.
local function less(a, b, c, d)
  local ab, cd = a * b, c * d
  if ab ~= cd or ab < EXACT then return ab < cd end
  local q1, r1 = muldiv(a, b, 1125899906842624)
  local q2, r2 = muldiv(c, d, 1125899906842624)
  return q1 < q2 or q1 == q2 and r1 < r2
end

-- twice returns 2*half + q. It returns the number as text if a double cannot hold it exactly, and
-- -1 if it is too large for any answer.
local function twice(half, q)
  if half > 4611686018427388 then return -1 end
  if 2 * half + q < EXACT then return 2 * half + q end
  local high, low = divide(half, 1e8)
  local carry
  carry, low = divide(2 * low + q, 1e8)
  return format('%.0f%08.0f', 2 * high + carry, low)
end

-- later returns t plus ahead, or t itself if t is 0 or -1. t is a wait in an answer. ahead is how
-- long the clock, which was set back, takes to catch up with the state; until then the state does
-- not change. t and the result may be text, as in twice.
local function later(t, ahead)
  if ahead == 0 or t == 0 or t == -1 then return t end
  local high, low
  if type(t) == 'string' then
    high, low = tonumber(t:sub(1, -9)), tonumber(t:sub(-8))
  elseif t + ahead < EXACT then
    return t + ahead
  else
    high, low = divide(t, 1e8)
  end
  local more, rest = divide(ahead, 1e8)
  local carry
  carry, low = divide(low + rest, 1e8)
  return format('%.0f%08.0f', high + more + carry, low)
end

-- numbers converts its arguments, texts of digits, to numbers. It returns nil if one of them is
-- missing or too large.
local function numbers(...)
  local all = {...}
  if #all == 0 then return nil end
  for i = 1, #all do
    all[i] = tonumber(all[i])
    if not all[i] or all[i] >= EXACT or all[i] <= -EXACT then return nil end
  end
  return unpack(all)
end

-- instant returns a time in microseconds, or nil if it is not a valid one.
local function instant(seconds, micros)
  local us = seconds * 1e6 + micros
  if micros < 1e6 and us < EXACT and us > -EXACT then return us end
end

-- expiry returns the time to live, in milliseconds, of a state that is not needed any more after us
-- microseconds. It adds pad milliseconds, which is more than what rounding can lose. The longest
-- result is about 31,000 years, which Redis accepts.
local function expiry(us, pad)
  return format('%.0f', min(math.ceil(max(us, 0) / 1000) + pad, 1e15))
end

-- lifetime returns for how many milliseconds the key of the state s lives, if the state is needed for us
-- microseconds. If s.returnable is set, the charge of this call may be given back, and the state before the charge
-- may be stored again. The key then lives at least for as long as it would live without this call.
local function lifetime(s, us, pad)
  local ms = expiry(us, pad)
  return s.returnable and format('%.0f', max(ms, call('PTTL', s.key))) or ms
end

-- corrupt ends the script with an error: key holds a value that is not a state.
local function corrupt(key) error('CORRUPT state in ' .. key, 0) end

-- kept returns which state to store. Usually it is s. If the new rate takes effect only with a charge,
-- s.before is the state before the change of the rate. If s.before is set and nothing was charged, this
-- state stays: kept returns it if heal has changed it. Otherwise the server has it already, and kept
-- returns false or nil.
local function kept(s, charged)
  if charged or not s.before then return s end
  return s.before.healed and s.before
end

-- kinds are the algorithms, by their letters. The file of each algorithm adds its own.
local kinds = {}

-- renew prepares the state s of this kind (algorithm) for the rate in c at the instant now, and
-- reports whether s has changed. It calls heal, which moves a state that is too far ahead of the
-- clock. How far is too far depends on the rate, so renew calls heal both before and after it
-- changes the rate.
local function renew(kind, s, c, now, heals)
  local healed = heals and kind.heal(s, now)
  local changed = kind.adopt(s, c, now) or healed
  if s.before then s.before.healed = healed end
  return heals and kind.heal(s, now) or changed
end
