-- Penalties: a key whose requests were denied too often is blocked for some time. A denial is a strike. The
-- first strike begins a period of the length Within. When the number of strikes in this period reaches After, a
-- block begins.
--
-- The strikes and the block of a key are stored beside its state, under a name of their own, as decimal
-- numbers, separated by spaces:
--
--   start count ends last
--
-- start is the microsecond of the first strike that counts, and count is how many strikes count. ends is the
-- microsecond at which the last block ended or will end, and last is how many microseconds it lasts; both are
-- 0 if there was no block.

-- record_of reads what is stored under key. The arguments from ARGV[v] on are the Penalty: After, and Within,
-- For and Most in microseconds. A record whose times are far ahead of now, because the clock was set back,
-- is moved to now.
local function record_of(key, v, now)
  local p = {key = key, after = ARGV[v] + 0, within = ARGV[v + 1] + 0, lasts = ARGV[v + 2] + 0, most = ARGV[v + 3] + 0}
  local text = call('GET', key)
  if not text then
    p.start, p.count, p.ends, p.last = 0, 0, 0, 0
    return p
  end
  local start, count, ends, last = match(text, '^(-?%d+) (%d+) (-?%d+) (%d+)$')
  if not start then error('CORRUPT state in ' .. key, 0) end
  p.start, p.count, p.ends, p.last = start + 0, count + 0, ends + 0, last + 0
  if heals then
    if p.start - now > 2 * p.within then p.start = now end
    if p.ends - now > 2 * p.last then
      p.ends = now + p.last
      p.moved = true
    end
  end
  return p
end

-- keep stores p for as long as anything depends on it: while strikes count, while the block lasts, and for
-- the time Most after the block. It returns whether p was stored. If the server refuses to write, keep returns
-- false and raises no error, so that a denial stays a denial.
local function keep(p, now)
  local needed = p.ends
  if p.last > 0 then needed = needed + p.most end
  if p.count > 0 then needed = math.max(needed, p.start + p.within) end
  local value = format('%.0f %.0f %.0f %.0f', p.start, p.count, p.ends, p.last)
  local ms = math.ceil(math.max(needed - now, 0) / 1000) + pad
  local done = pcall('SET', p.key, value, 'PX', format('%.0f', ms))
  return not done.err
end

-- strike counts one denial at the instant now of a key that is not blocked. It returns for how many
-- microseconds the key is blocked from now on, or 0.
local function strike(p, now)
  local at = math.max(now, p.start)
  if p.count == 0 or at >= p.start + p.within then p.start, p.count, at = now, 0, now end
  p.count = p.count + 1
  if p.count >= p.after then
    local again = p.last > 0 and at - p.ends < p.most
    p.last = again and math.min(2 * p.last, p.most) or p.lasts
    p.count, p.ends = 0, at + p.last
  end
  if not keep(p, now) then return 0 end
  return math.max(p.ends - now, 0)
end

-- longer returns the larger of a number and of a time in an answer, which is -1 or text if it is very long.
local function longer(rest, time)
  if time == -1 or type(time) == 'string' then return time end
  return math.max(rest, time)
end

-- deny changes the five numbers of an answer, which follow the i-th item of the reply, to those of a denial by a block
-- that still lasts for rest microseconds. The first number is then rest plus 1.
local function deny(reply, i, rest)
  reply[i + 1], reply[i + 2], reply[i + 3], reply[i + 4], reply[i + 5] =
    rest + 1, 0, longer(rest, reply[i + 3]), longer(rest, reply[i + 4]), 0
end
