-- Warm-up: the limit of a new key is lower at first, and grows with the time since its first charge.
-- While it grows, the key is young. The letters of algorithms with warm-up are T, L, F, C and S.
--
-- A state is stored as that of the algorithm without warm-up, followed by a space, an @, the instant of the
-- first charge in microseconds, a space, and the limit in units. For a log, all this follows the header. A
-- key without the @ is new.
--
-- The last argument of an ask, the burst, is four numbers, separated by spaces: the burst; the
-- units of the limit that a new key has; the limit in units; and the microseconds in which the
-- limit grows.

-- longest is the longest wait that is computed, in microseconds: 142 years.
local longest = 4503599627370496

-- warmed reads the four numbers and puts them into the config c.
local function warmed(c, text)
  c[3], c.from, c.limit, c.over = numbers(match(text, '^(%d+) (%d+) (%d+) (%d+)$'))
end

-- fit returns how many units can be granted at once to a key with this debt, if one unit costs weight. It
-- computes a quotient of doubles, which is wrong by less than 1. So there are only few candidates, and fit
-- checks them by their exact costs.
local function fit(s, debt, weight)
  local function fits(n) return not below({s.burst, 0, 0}, sum(s, debt, cost(s, weight, n))) end
  local fines = grain(s.gain)
  local room = s.burst - debt[1] - (debt[2] + debt[3] / fines) / s.unit
  local n = floor(room / (weight[1] + (weight[2] + (weight[3] + weight[4] / weight[5]) / fines) / s.unit)) + 1
  while n > 0 and not fits(n) do n = n - 1 end
  return max(n, 0)
end

-- beyond reports whether the wait t is at least n microseconds. t may also be text or -1, which
-- stand for very long waits.
local function beyond(t, n) return type(t) == 'string' or t == -1 or t >= n end

-- portion returns the limit of a key of this age, in units. The age is the time since its first
-- charge.
local function portion(c, age)
  if age >= c.over or c.from >= c.limit then return c.limit end
  return c.from + muldiv(c.limit - c.from, age, c.over)
end

-- warm returns a kind (algorithm) that works as the kind inner, but whose keys have a lower limit
-- at first.
local function warm(inner)
  local kind = setmetatable({}, {__index = inner})

  -- young does what inner.look does, for a key that has only the given number of units of its
  -- limit.
  local function young(a, s, now, want, units)
    local c = a.config
    if not s.gain then -- it counts in windows
      local limit = c[1]
      c[1] = units
      inner.look(a, s, now, want)
      c[1] = limit
      return
    end
    inner.look(a, s, now, 1)
    a.weight = weight(s, units, c.limit)
    a.left, a.retry, a.delay = fit(s, a.debt, a.weight), 0, 0
    if want > a.left then
      a.retry = 1
    elseif s.queue then
      a.delay = to_drain(s, a.queue[1], a.queue)
    end
  end

  -- known returns the instant of the first charge of s, or nil if s counts as new by now.
  local function known(s, c, now)
    if s.first and now - c.over >= s.last then
      local a = {config = c}
      inner.look(a, s, now - c.over, 1)
      if a.reset == 0 then return nil end
    end
    return s.first
  end

  kind.known = known

  -- wait returns in how many microseconds want units will fit, which do not fit now. The limit of a
  -- key that was never charged does not grow.
  local function wait(a, s, now, want)
    local c, most = a.config, a.reset
    if want > (c[3] > 0 and c[3] or c[1]) then return -1 end
    if beyond(most, longest) then most = longest end
    if a.first then most = max(most, a.first + c.over - now) end
    local function granted(later)
      local b, t = {config = c}, s.slow or s
      young(b, t, now + later, want, portion(c, a.first and now + later - a.first or 0))
      return b.retry == 0
    end
    if not granted(most) then return -1 end
    local low = 0
    while most - low > 1 do
      local middle = floor((low + most) / 2)
      if granted(middle) then most = middle else low = middle end
    end
    return most
  end

  -- grow makes the ResetAfter of a at least the time until the key has the full limit.
  local function grow(a, now)
    local rest = a.first and a.first + a.config.over - now or 0
    if not beyond(a.reset, rest) then a.reset = rest end
  end

  function kind.look(a, s, now, want)
    local c = a.config
    a.first, a.weight, s.over = known(s, c, now), nil, c.over
    if s.before then s.before.over = c.over end
    local age = a.first and now - a.first or 0
    if a.first and age >= c.over then return inner.look(a, s, now, want) end
    young(a, s, now, want, portion(c, age))
    if a.retry ~= 0 then a.retry = wait(a, s, now, want) end
    grow(a, now)
  end

  function kind.charge(a, s, now, n)
    local e, new = a.receipt, not a.first
    local weight = a.weight
    if weight then
      local debt, queue, more = a.debt, a.queue, cost(s, weight, n)
      inner.charge(a, s, now, 0)
      s.debt = sum(s, debt, more)
      if s.queue then s.queue = sum(s, queue, more) end
      show(a, s, s.debt, s.queue or s.debt)
      a.left = fit(s, s.debt, weight)
    else
      inner.charge(a, s, now, n)
    end
    a.first = a.first or now
    s.first, s.limit = a.first, a.config.limit
    if e then
      e.n, e.first, e.each, e.low = n, new, weight and {weight[5], a.config.limit} or {1, 0, 0}, s.debt or e.low
    end
    grow(a, now)
  end

  -- exceed charges n units whatever the limit. What they cost depends on the age of the key.
  function kind.exceed(s, now, n, c)
    local first, limit = known(s, c, now) or now, s.limit or c.limit
    local units = portion({from = c.from, limit = limit, over = c.over}, now - first)
    inner.exceed(s, now, n, c, s.gain and cost(s, weight(s, units, limit), n))
    s.first, s.limit, s.over = first, limit, c.over
  end

  function kind.heal(s, now)
    if not inner.heal(s, now) then return false end
    if s.first then s.first = min(s.first, now) end
    return true
  end

  -- adopt does what inner.adopt does. It also makes the key new if it counts as new at its former rate.
  -- If only the limit is different, that is a new rate too, even if inner does not store the limit.
  function kind.adopt(s, c, now)
    local first = known(s, c, now)
    if not inner.adopt(s, c, now) and (not s.first or s.limit == c.limit) then return false end
    s.first, s.limit = first, c.limit
    return true
  end

  function kind.save(key, s, now, pad) inner.save(key, s, now, pad + math.ceil((s.over or 0) / 1000)) end

  return kind
end

for _, letter in ipairs({'t', 'l', 'f', 'c', 's'}) do
  if kinds[letter] then kinds[letter:upper()] = warm(kinds[letter]) end
end
