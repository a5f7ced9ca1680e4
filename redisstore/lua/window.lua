-- Fixed window and sliding window counter: counts of windows of length per, which begin at
-- multiples of per since the Unix epoch.
--
-- A state is stored as decimal numbers, separated by spaces:
--
--   fixed window            per  seconds micros  used
--   sliding window counter  per  seconds micros  prev cur
--
-- per is the length of the window under which the state was written. The limit is not stored: a
-- count means the same under any limit. seconds and micros are the instant of the last charge. used
-- and cur count the window that contains it; prev counts the window before.

local function window_heal(s, now)
  if s.last - now <= 2 * s.per then return false end
  s.dropped, s.marked = s.dropped or s.marked, nil
  s.last = now
  return true
end

local fixed = {heal = window_heal}

local function encode_fixed(s)
  local seconds, micros = divide(s.last, 1e6)
  return format('%.0f %.0f %.0f %.0f', s.per, seconds, micros, s.used) .. ending(s)
end

function fixed.fresh(c, now, key) return {encode = encode_fixed, key = key, per = c[2], last = now, used = 0} end

function fixed.load(key)
  local v = call('GET', key)
  if not v then return nil end
  local s, seconds, micros = {encode = encode_fixed, key = key}
  v, s.marked, s.first, s.limit = unmarked(v)
  s.per, seconds, micros, s.used = numbers(match(v, '^(%d+) (-?%d+) (%d+) (%d+)$'))
  if not s.per or s.per < 1 then return corrupt(key) end
  s.last = instant(seconds, micros) or corrupt(key)
  return s
end

-- used returns how many units are charged in the window that contains now, and how many
-- microseconds ago this window began.
function fixed.used(s, now)
  local _, offset = divide(now, s.per)
  if now - s.last > offset then return 0, offset end
  return s.used, offset
end

-- adopt changes s to the length of the window in c, and reports whether that is a new length. The
-- count of the old window becomes the count of the new window that contains now.
function fixed.adopt(s, c, now)
  if s.per == c[2] then return false end
  s.dropped, s.marked = s.dropped or s.marked, nil -- units of a window that has another length now cannot be told apart
  now = max(now, s.last)
  s.used, s.last, s.per = fixed.used(s, now), now, c[2]
  return true
end

function fixed.look(a, s, now, want)
  local used, offset = fixed.used(s, now)
  a.used, a.ends, a.delay = used, s.per - offset, 0
  a.left = max(a.config[1] - used, 0)
  a.reset = used > 0 and a.ends or 0
  a.retry = 0
  if want > a.config[1] then
    a.retry = -1
  elseif want > a.config[1] - used then
    a.retry = a.ends
  end
end

function fixed.charge(a, s, now, n)
  if s.marked or a.receipt then receipts().charge(a, s, now, n, {0, 0, 0}) end
  s.last, s.used = now, a.used + n
  a.left, a.reset = a.left - n, a.ends
end

function fixed.save(key, s, now, pad)
  local _, offset = divide(s.last, s.per)
  call('SET', key, s.encode(s), 'PX', lifetime(s, s.last - now + s.per - offset, pad))
  if s.marked or s.dropped then receipts().save(s, now, pad) end
end

local counter = {heal = window_heal}

local function encode_counter(s)
  local seconds, micros = divide(s.last, 1e6)
  return format('%.0f %.0f %.0f %.0f %.0f', s.per, seconds, micros, s.prev, s.cur) .. ending(s)
end

function counter.fresh(c, now, key)
  return {encode = encode_counter, key = key, per = c[2], last = now, prev = 0, cur = 0}
end

function counter.load(key)
  local v = call('GET', key)
  if not v then return nil end
  local s, seconds, micros = {encode = encode_counter, key = key}
  v, s.marked, s.first, s.limit = unmarked(v)
  s.per, seconds, micros, s.prev, s.cur = numbers(match(v, '^(%d+) (-?%d+) (%d+) (%d+) (%d+)$'))
  if not s.per or s.per < 1 then return corrupt(key) end
  s.last = instant(seconds, micros) or corrupt(key)
  return s
end

-- counts returns three numbers: the count of the previous window, the count of the window that
-- contains now, and how many microseconds ago this window began.
function counter.counts(s, now)
  local _, offset = divide(now, s.per)
  local ago = now - s.last
  if ago <= offset then return s.prev, s.cur, offset end
  if ago - offset <= s.per then return s.cur, 0, offset end
  return 0, 0, offset
end

-- weighted estimates how many of the prev units of the previous window are less than one window
-- old: prev times the part of that window which is, rounded up.
function counter.weighted(s, prev, offset)
  local q, r = muldiv(prev, s.per - offset, s.per)
  if r > 0 then q = q + 1 end
  return q
end

-- adopt changes s to the length of the window in c, and reports whether that is a new length. The
-- estimate for the old length becomes the count of the new window that contains now.
function counter.adopt(s, c, now)
  if s.per == c[2] then return false end
  s.dropped, s.marked = s.dropped or s.marked, nil -- units of a window that has another length now cannot be told apart
  now = max(now, s.last)
  local prev, cur, offset = counter.counts(s, now)
  s.prev, s.cur = 0, min(cur + counter.weighted(s, prev, offset), 4503599627370496)
  s.last, s.per = now, c[2]
  return true
end

-- wait returns in how many microseconds want units will fit, which do not fit now. If cur
-- leaves room for them, the weight of prev must fall to that room. Otherwise cur must first
-- become the previous count, and then its weight must fall.
function counter.wait(a, s, prev, cur, offset, want)
  local ends, fading, room = s.per, prev, a.config[1] - cur - want
  if room < 0 then
    ends, fading, room = 2 * s.per, cur, a.config[1] - want
  end
  return ends - muldiv(room, s.per, fading) - offset
end

function counter.look(a, s, now, want)
  local prev, cur, offset = counter.counts(s, now)
  local left = a.config[1] - counter.weighted(s, prev, offset) - cur
  a.prev, a.cur, a.ends, a.delay = prev, cur, 2 * s.per - offset, 0
  a.left, a.retry, a.reset = max(left, 0), 0, 0
  if want > a.config[1] then
    a.retry = -1
  elseif want > left then
    a.retry = counter.wait(a, s, prev, cur, offset, want)
  end
  if cur > 0 then
    a.reset = a.ends
  elseif prev > 0 then
    a.reset = a.ends - s.per
  end
end

function counter.charge(a, s, now, n)
  if s.marked or a.receipt then receipts().charge(a, s, now, n, {0, 0, 0}) end
  s.last, s.prev, s.cur = now, a.prev, a.cur + n
  a.left, a.reset = a.left - n, a.ends
end

function counter.save(key, s, now, pad)
  local _, offset = divide(s.last, s.per)
  call('SET', key, s.encode(s), 'PX', lifetime(s, s.last - now + 2 * s.per - offset, pad))
  if s.marked or s.dropped then receipts().save(s, now, pad) end
end

kinds.f, kinds.c = fixed, counter
