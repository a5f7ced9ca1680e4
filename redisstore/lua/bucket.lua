-- Token bucket and leaky bucket: a debt that grows by the tokens that are taken and drains
-- as time passes. A token is divided into unit parts, of which gain drain each microsecond.
--
-- An amount of debt is a level {whole, frac, fine}. whole is a number of tokens. frac is a number of
-- parts, fewer than unit. fine is a number of fine parts, fewer than grain; they divide a part further.
-- The debt that drains in a microsecond is gain parts and no fine parts. Fine parts appear only when a
-- level is converted from another rate. They make the conversion as exact as one that counts nanoseconds.
--
-- A state is stored as decimal numbers, separated by spaces:
--
--   short form    gain unit burst  seconds micros  parts
--   token bucket  gain unit burst  seconds micros  whole frac fine
--   leaky bucket  gain unit burst  seconds micros  whole frac fine  whole frac fine
--   two rates     one of the last two forms, and then slowest_gain slowest_unit
--
-- gain, unit and burst are the rate, in lowest terms, under which the state was written. seconds and
-- micros are the instant at which the levels were true. The first level is the debt. The second level is
-- the queue of a leaky bucket: the units that have not left yet. The short form has the whole debt as one
-- number of parts. It is used if the debt is fewer than 2^53 parts and has no fine parts, and the queue
-- equals the debt.
--
-- A key may have been charged at several rates since it was new. It counts as new again when its debt
-- would have drained since its last charge even at the slowest of these rates. The form of two rates is
-- used if this slowest rate is not the rate of the state. The key does not expire before it counts as new.
-- After that, it makes no difference whether it has expired: a request at any rate finds a key that owes
-- nothing. Keys in memory follow the same rule; internal/engine/tworates.go proves that the rule forgives
-- no debt.

-- grain returns how many fine parts make up a part, if gain parts drain in a microsecond. It is the
-- smallest number for which a whole number of fine parts drains in a nanosecond.
local function grain(gain)
  local a, b = 1000, gain
  while b > 0 do
    local rest = fmod(a, b)
    a = b
    b = rest
  end
  return 1000 / a
end

-- below reports whether the level a is less than b.
local function below(a, b)
  for i = 1, 3 do
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
  return false
end

-- drained returns what is left of level, a level of the state s, after elapsed microseconds.
local function drained(s, level, elapsed)
  local parts = elapsed * s.gain
  if parts >= EXACT and parts / s.unit > level[1] + 2 then return {0, 0, 0} end
  local whole, frac = muldiv(elapsed, s.gain, s.unit)
  whole, frac = level[1] - whole, level[2] - frac
  if frac < 0 then whole, frac = whole - 1, frac + s.unit end
  if whole < 0 then return {0, 0, 0} end
  return {whole, frac, level[3]}
end

-- to_drain returns how many microseconds a debt takes to drain, rounded up. The debt is the given
-- number of whole tokens, and the parts and fine parts of level.
local function to_drain(s, whole, level)
  local parts = whole * s.unit + level[2]
  local half, rest = 0, parts
  if parts >= EXACT then
    half, rest = muldiv(whole, s.unit, 2 * s.gain)
    rest = rest + level[2]
  end
  local q, r = divide(rest, s.gain)
  if r > 0 or level[3] > 0 then q = q + 1 end
  return twice(half, q)
end

-- scaled multiplies a part of a token by n. The arguments frac and fine are its parts and its fine
-- parts. scaled returns the whole tokens of the product, and the parts and fine parts that remain.
local function scaled(frac, fine, unit, grain, n)
  if fine == 0 then
    local q, r = muldiv(frac, n, unit)
    return q, r, 0
  end
  local _, bits = math.frexp(n)
  local q, r, f, bit = 0, 0, 0, 2 ^ (bits - 1)
  while bit >= 1 do
    q, r, f = 2 * q, 2 * r, 2 * f
    if n >= bit then n, r, f = n - bit, r + frac, f + fine end
    while f >= grain do r, f = r + 1, f - grain end
    while r >= unit do q, r = q + 1, r - unit end
    bit = bit / 2
  end
  return q, r, f
end

-- converted returns a level of the state s in the parts and fine parts of another rate (gain and
-- unit). It rounds up, or down if down is true.
local function converted(s, level, gain, unit, down)
  local from, to = grain(s.gain), grain(gain)
  if s.unit == unit and from == to then return level end
  local whole, frac, r, f, fine = level[1]
  frac, r, f = scaled(level[2], level[3], s.unit, from, unit)
  fine, r, f = scaled(r, f, s.unit, from, to)
  if (r > 0 or f > 0) and not down then fine = fine + 1 end
  if fine == to then frac, fine = frac + 1, 0 end
  if frac == unit then whole, frac = whole + 1, 0 end
  return {whole, frac, fine}
end

-- carry drains the levels of the state s at its old rate until now, and then changes the rate to
-- gain and unit.
local function carry(s, gain, unit, now)
  now = max(now, s.last)
  local elapsed = now - s.last
  s.debt = converted(s, drained(s, s.debt, elapsed), gain, unit)
  if s.queue then s.queue = converted(s, drained(s, s.queue, elapsed), gain, unit) end
  s.gain, s.unit, s.last = gain, unit, now
end

-- resize changes the burst of s. A used bucket keeps the tokens that are left, as far as they fit: a
-- higher burst adds no tokens at once. An unused bucket stays unused. The debt of a leaky bucket is
-- afterwards at least its queue or, if the queue is longer than the burst, the whole burst. The argument
-- ahead is true if the burst will change only later. The debt is then at least the queue in any case.
-- resize returns true if it has dropped a part of the queue from the debt, or if the debt did not change
-- by as much as the burst.
local function resize(s, burst, ahead)
  local none = {0, 0, 0}
  local debt, used, dropped = s.debt, s.queue or none, false
  if below(none, used) or below(none, debt) then
    debt = {debt[1] + burst - s.burst, debt[2], debt[3]}
    if not ahead and below({burst, 0, 0}, used) then used, dropped = {burst, 0, 0}, true end
    if below(debt, used) then debt, dropped = used, true end
  end
  s.debt, s.burst = debt, burst
  return dropped
end

-- lower records that the debt of the state s has been as low as debt. Receipts of earlier charges
-- cannot give back more than the lowest debt since the charge; see layers.lua.
local function lower(s, debt)
  if not s.low or below(debt, s.low) then s.low = debt end
end

-- rest_of returns two values. The second value is the slowest rate at which s was charged since it was new. The first
-- value is what s owes at the instant now if it has drained at this rate since its last charge. For a leaky bucket,
-- what it owes is the larger one of debt and queue.
local function rest_of(s, now)
  local level, slowest = s.queue and below(s.debt, s.queue) and s.queue or s.debt, s.slowest or s
  return drained(slowest, converted(s, level, slowest.gain, slowest.unit), max(now - s.last, 0)), slowest
end

-- is_new reports whether s counts as new at the instant now. If the rate has a warm-up, the argument over is how long
-- the warm-up lasts. A key that warms up counts as new only if it has owed nothing for at least that long.
local function is_new(s, now, over)
  now = max(now, s.last)
  if s.first and over then now = now - over end
  return now >= s.last and not below({0, 0, 0}, (rest_of(s, now)))
end

-- life returns a number of microseconds. When so many have passed since the last charge of s, s certainly counts as new.
local function life(s)
  local whole, slowest = max(s.debt[1], s.queue and s.queue[1] or 0) + 1, s.slowest or s
  return whole * slowest.unit / slowest.gain
end

-- sooner returns the shorter one of two waits. They may be text or -1, as in twice.
local function sooner(a, b)
  if b == -1 or a == b then return a end
  if a == -1 then return b end
  if type(a) ~= type(b) then return type(a) == 'string' and b or a end
  if type(a) == 'string' and #a ~= #b then return #a < #b and a or b end
  return a < b and a or b
end

-- bucket holds the functions that the token bucket and the leaky bucket share.
local bucket = {}

-- heal moves the state s to now if its time is so far ahead of now that a bucket which owes its
-- whole burst would have drained by then. In that case the clock must have been wrong when the
-- state was written.
function bucket.heal(s, now)
  if (s.last - now) * s.gain <= s.burst * s.unit then return false end
  s.last = now
  if s.before then s.before.last, s.before.healed, s.slow.last = now, true, now end
  return true
end

-- copy returns a copy of s.
local function copy(s)
  return {
    encode = s.encode, key = s.key, marked = s.marked, first = s.first, limit = s.limit,
    gain = s.gain, unit = s.unit, burst = s.burst, last = s.last, debt = s.debt, queue = s.queue, slowest = s.slowest,
  }
end

-- adopt changes the state s to the rate in c, and reports whether that is a new rate. It is not known when
-- the rate of the key changed, so all of the time since the last charge counts at the slower of the two
-- rates.
--
-- In three cases only a charge stores the changed state:
--
--   - The burst is smaller than before. Otherwise a client with two rates could send requests that cost
--     nothing at the smaller burst until its key owes nothing, and then have the whole larger burst at once.
--   - The rate is slower than before, and the new rate has no warm-up. Otherwise denied requests at a slow
--     rate could take units from others that use the same key.
--   - The bucket owes nothing at its old rate, and the new rate has no warm-up. Otherwise what the bucket owes
--     at the slowest rate would be lost.
--
-- In these cases adopt sets two fields. s.before is the state as it was, which stays stored until a
-- charge. s.slow is a copy of s that drains at the slower of the two rates, and look computes the waits
-- from it. If s.slow.new is set, it is how long the key takes to count as new. If the burst grows,
-- s.slow.used has the old burst and the old levels. Until these levels have drained, at most used.burst
-- tokens fit. After that, the bucket is unused.
function bucket.adopt(s, c, now)
  local gain, unit, burst = c[1], c[2], c[3]
  local same, new = s.gain == gain and s.unit == unit and s.burst == burst, nil
  if not same or s.slowest then new = is_new(s, now, c.over) end
  if same then
    if new then s.slowest = nil end
    return false
  end
  local was, slower, before, slow, rest = copy(s), less(gain, s.unit, s.gain, unit), nil, nil, nil
  if slower and not new and not c.over then
    local level, slowest = rest_of(s, now)
    rest = to_drain(slowest, level[1], level)
  end
  local slowest = s.slowest or {gain = s.gain, unit = s.unit}
  s.slowest = not new and less(slowest.gain, unit, gain, slowest.unit) and slowest or nil
  if slower and not new then carry(s, gain, unit, s.last) end
  carry(s, s.gain, s.unit, now)
  local owes = below({0, 0, 0}, s.debt) or s.queue and below({0, 0, 0}, s.queue)
  if burst < s.burst or (slower or not owes) and not c.over then
    before, slow = was, copy(s)
    slow.new = rest
    if burst > s.burst then slow.used = {burst = s.burst, debt = s.debt, queue = s.queue or s.debt} end
    resize(slow, burst, true)
  end
  carry(s, gain, unit, now)
  if s.marked then
    s.rescaled = {gain = was.gain, unit = was.unit}
    lower(s, s.debt)
  end
  if resize(s, burst) and s.marked then
    lower(s, {0, 0, 0}) -- the dropped part may belong to a receipt, so nothing can be given back any more
  end
  s.before, s.slow = before, slow
  return true
end

-- show sets a.left to the number of tokens that are left with this debt, and a.reset to the time
-- until debt and queue have drained.
local function show(a, s, debt, queue)
  a.left = s.burst - debt[1]
  if debt[2] > 0 or debt[3] > 0 then a.left = a.left - 1 end
  if below(debt, queue) then debt = queue end
  a.reset = to_drain(s, debt[1], debt)
end

-- look decides whether the state s has want tokens left at the instant now, and stores the answer
-- in a. It charges nothing.
function bucket.look(a, s, now, want)
  local elapsed = now - s.last
  a.debt = drained(s, s.debt, elapsed)
  a.queue = s.queue and drained(s, s.queue, elapsed) or a.debt
  show(a, s, a.debt, a.queue)
  a.retry, a.delay = 0, 0
  local slow, debt = s.slow or s, a.debt
  local used = slow.used
  if s.slow then
    debt = drained(slow, slow.debt, now - slow.last)
    local rest, other = slow.queue and drained(slow, slow.queue, now - slow.last) or debt, debt
    if used then rest, other = drained(slow, used.queue, now - slow.last), drained(slow, used.debt, now - slow.last) end
    if below(rest, other) then rest = other end
    a.reset = to_drain(slow, rest[1], rest)
    if slow.new then a.reset = sooner(a.reset, slow.new) end
  end
  if want > s.burst then
    a.retry = -1
  elseif used and want > a.left and want > used.burst then
    a.retry = a.reset
  elseif want > a.left then
    a.retry = to_drain(slow, debt[1] + want - s.burst, debt)
    if slow.new then a.retry = sooner(a.retry, slow.new) end
  elseif s.queue then
    a.delay = to_drain(s, a.queue[1], a.queue)
  end
  a.left = max(a.left, 0) -- it is negative if the key was charged beyond its burst
end

-- plus returns a level plus n tokens.
local function plus(level, n) return {level[1] + n, level[2], level[3]} end

-- charge charges n tokens to the state s at the instant now. Before this, look must have granted
-- them.
function bucket.charge(a, s, now, n)
  s.before, s.slow = nil, nil
  if s.marked then lower(s, a.debt) end
  s.last, s.debt = now, plus(a.debt, n)
  if s.marked or a.receipt then receipts().charge(a, s, now, n, s.debt) end
  if s.queue then s.queue = plus(a.queue, n) end
  show(a, s, s.debt, s.queue or s.debt)
end

-- save writes the state s, with a time to live until it counts as new.
function bucket.save(key, s, now, pad)
  call('SET', key, s.encode(s), 'PX', lifetime(s, s.last - now + life(s), pad))
  if s.marked or s.dropped then receipts().save(s, now, pad) end
end

-- encode returns the text to store for s. It is the short form if short is true, the debt fits into
-- it and there is no slower rate. Otherwise it is the long form, with the further arguments at its end.
local function encode(s, short, ...)
  local seconds, micros = divide(s.last, 1e6)
  local head = format('%.0f %.0f %.0f %.0f %.0f ', s.gain, s.unit, s.burst, seconds, micros)
  local debt, more = s.debt, {...}
  if s.slowest then more[#more + 1], more[#more + 2] = s.slowest.gain, s.slowest.unit end
  local parts = debt[1] * s.unit + debt[2]
  local tail = ending(s)
  if short and not s.slowest and debt[3] == 0 and parts < EXACT then return head .. format('%.0f', parts) .. tail end
  for i = 1, #more do more[i] = format(' %.0f', more[i]) end
  return head .. format('%.0f %.0f %.0f', debt[1], debt[2], debt[3]) .. table.concat(more) .. tail
end

local function encode_token(s) return encode(s, true) end

local function encode_leaky(s)
  local debt, queue = s.debt, s.queue
  local same = debt[1] == queue[1] and debt[2] == queue[2] and debt[3] == queue[3]
  return encode(s, same, queue[1], queue[2], queue[3])
end

-- sound reports whether level is valid at the rate of s: its parts make up less than a token, and
-- its fine parts less than a part.
local function sound(s, level) return level[2] < s.unit and level[3] < grain(s.gain) end

-- read_bucket returns the state in the text v, which is the value of key, and the numbers that
-- follow its debt. pattern matches the long form of one rate. If v is not a state of a bucket, the
-- script ends with an error.
local function read_bucket(key, v, encode, pattern)
  local s, x, y, z = {encode = encode, key = key, debt = {0, 0, 0}}
  v, s.marked, s.first, s.limit = unmarked(v)
  local debt, seconds, micros, parts = s.debt
  s.gain, s.unit, s.burst, seconds, micros, parts = numbers(match(v, '^(%d+) (%d+) (%d+) (-?%d+) (%d+) (%d+)$'))
  if not parts then
    local all = {numbers(match(v, pattern .. '$'))}
    if not all[1] then
      all = {numbers(match(v, pattern .. ' (%d+) (%d+)$'))}
      local unit = table.remove(all)
      s.slowest = {gain = table.remove(all), unit = unit}
      if not unit or unit < 1 or s.slowest.gain < 1 then all, s.slowest = {}, nil end
    end
    if not all[1] then all = {numbers(match(v, pattern .. ' %-?%d+$'))} end -- of an earlier version
    s.gain, s.unit, s.burst, seconds, micros, debt[1], debt[2], debt[3], x, y, z = unpack(all)
  end
  if not s.gain or s.gain < 1 or s.unit < 1 then return corrupt(key) end
  if parts then debt[1], debt[2] = divide(parts, s.unit) end
  s.last = instant(seconds, micros)
  if not s.last or debt[1] > 2251799813685248 or not sound(s, debt) then return corrupt(key) end
  return s, x, y, z
end

local token = setmetatable({}, {__index = bucket})

function token.fresh(c, now, key)
  return {encode = encode_token, key = key, gain = c[1], unit = c[2], burst = c[3], last = now, debt = {0, 0, 0}}
end

function token.load(key)
  local v = call('GET', key)
  if not v then return nil end
  return (read_bucket(key, v, encode_token, '^(%d+) (%d+) (%d+) (-?%d+) (%d+) (%d+) (%d+) (%d+)'))
end

local leaky = setmetatable({}, {__index = bucket})

function leaky.fresh(c, now, key)
  return {encode = encode_leaky, key = key, gain = c[1], unit = c[2], burst = c[3], last = now, debt = {0, 0, 0}, queue = {0, 0, 0}}
end

function leaky.load(key)
  local v = call('GET', key)
  if not v then return nil end
  local s, whole, frac, fine =
    read_bucket(key, v, encode_leaky, '^(%d+) (%d+) (%d+) (-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
  s.queue = whole and {whole, frac, fine} or s.debt
  if not sound(s, s.queue) then return corrupt(key) end
  return s
end

kinds.t, kinds.l = token, leaky
