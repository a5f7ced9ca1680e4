-- Fixed window and sliding window counter: counts of windows of length per, which begin at
-- multiples of per since the Unix epoch. A fixed window may have other windows instead, see below.
--
-- A state is stored as decimal numbers, separated by spaces:
--
--   fixed window            per  seconds micros  used
--   sliding window counter  per  seconds micros  prev cur
--
-- per is the length of the window under which the state was written. The limit is not stored: a
-- count means the same under any limit. seconds and micros are the instant of the last charge. used
-- and cur count the window that contains it; prev counts the window before.
--
-- A fixed window whose windows begin with the first use, or are those of a calendar, is stored as
--
--   first:per  seconds micros  used
--   calendar   seconds micros  used  begin ends
--
-- In the form that begins with "first:", seconds and micros are the instant at which the window began. In the
-- other form, calendar is the text of a Window, with _ in place of spaces. begin and ends are the seconds at
-- which the window that contains the last charge began and will end, by the zone data of the process that made
-- this charge.

-- window_heal moves a state that is far ahead of now to now. It also clears the begin and the end of the window
-- in the state, so that adopt then determines the window that contains now.
local function window_heal(s, now)
  if s.last - now <= 2 * (s.per or s.ends - s.begin) then return false end
  s.dropped, s.marked = s.dropped or s.marked, nil
  s.last, s.begin, s.ends = now, nil, nil
  return true
end

local fixed = {heal = window_heal}

-- The fields of a fixed window: s.window and c.window are nil for windows that begin at multiples of per, and
-- otherwise the first word of the stored state. s.per is nil for a calendar. s.begin and s.ends are the begin
-- and the end of the window that contains s.last. They are nil in two cases. First, if the window can be computed
-- from s.last. Second, if there is no window: a window that begins with the first use has not begun while s.used
-- is 0. In the second case, s.last is the begin of the previous window, and the next window cannot begin before it.

local function encode_fixed(s)
  local seconds, micros = divide(s.last, 1e6)
  local v = format('%s %.0f %.0f %.0f', s.window or format('%.0f', s.per), seconds, micros, s.used)
  if not s.per then v = format('%s %.0f %.0f', v, s.begin / 1e6, s.ends / 1e6) end
  return v .. ending(s)
end

function fixed.fresh(c, now, key)
  return {encode = encode_fixed, key = key, window = c.window, per = c[2], last = now, used = 0}
end

function fixed.load(key)
  local v = call('GET', key)
  if not v then return nil end
  local s, window, seconds, micros, rest = {encode = encode_fixed, key = key}
  v, s.marked, s.first, s.limit = unmarked(v)
  window, seconds, micros, s.used, rest = match(v, '^(%S+) (-?%d+) (%d+) (%d+)(.*)$')
  seconds, micros, s.used = numbers(seconds, micros, s.used)
  s.last = seconds and instant(seconds, micros) or corrupt(key)
  s.per = numbers(match(window, '^%d+$') or match(window, '^first:(%d+)$'))
  if s.per and s.per < 1 or s.per and rest ~= '' then return corrupt(key) end
  if match(window, '^%d') then return s.per and s or corrupt(key) end
  s.window = window
  if not s.per then
    s.begin, s.ends = numbers(match(rest, '^ (-?%d+) (-?%d+)$'))
    if not s.ends then return corrupt(key) end
    s.begin, s.ends = s.begin * 1e6, s.ends * 1e6
  elseif s.used > 0 then
    s.begin, s.ends = s.last, s.last + s.per
  end
  return s
end

-- span returns the begin and the end of the window that contains the instant now. now must not be before s.last.
-- If windows begin with the first use and none contains now, the window begins now. For a calendar, span may find
-- no window: that of s has ended, and c has no edges of the calendar around now. It then returns a window of no
-- length.
function fixed.span(s, c, now)
  if s.begin and now < s.ends then return s.begin, s.ends end
  if s.per and not s.window then
    local _, offset = divide(now, s.per)
    return now - offset, now - offset + s.per
  end
  if s.per then return now, now + s.per end
  local edges = c and c.window == s.window and c.edges or {}
  for i = 1, #edges - 1 do
    if edges[i] <= now and now < edges[i + 1] then return edges[i], edges[i + 1] end
  end
  return now, now
end

-- used returns how many units are charged in the window that contains now, and the begin and the end of
-- this window.
function fixed.used(s, c, now)
  local begin, ends = fixed.span(s, c, now)
  return s.last >= begin and s.used or 0, begin, ends
end

-- keep_count stores in s that the window from begin to ends contains now, and that used units are charged in it.
local function keep_count(s, now, used, begin, ends)
  s.used, s.begin, s.ends = used, nil, nil
  if s.window and (used > 0 or not s.per) then s.begin, s.ends = begin, ends end
  s.last = s.per and s.begin or now
end

-- adopt changes s to the windows in c, and reports whether these are others. The count of the old
-- window becomes the count of the new window that contains now.
function fixed.adopt(s, c, now)
  now = max(now, s.last)
  if s.window == c.window and s.per == c[2] then
    if s.window and not s.begin then s.begin, s.ends = fixed.span(s, c, now) end
    return false
  end
  s.dropped, s.marked = s.dropped or s.marked, nil -- units of a window that has another length now cannot be told apart
  local used = fixed.used(s, c, now)
  s.window, s.per, s.begin, s.ends = c.window, c[2], nil, nil
  keep_count(s, now, used, fixed.span(s, c, now))
  return true
end

function fixed.look(a, s, now, want)
  local used, begin, ends = fixed.used(s, a.config, now)
  a.used, a.begin, a.ends, a.delay = used, begin, ends - now, 0
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
  keep_count(s, now, a.used + n, a.begin, now + a.ends)
  a.left, a.reset = a.left - n, a.ends
end

function fixed.save(key, s, now, pad)
  local _, ends = fixed.span(s, nil, s.last)
  call('SET', key, s.encode(s), 'PX', lifetime(s, ends - now, pad))
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

-- weighted estimates how many of the prev units of the previous window are less than per old. The
-- result is prev times the share of the previous window that is less than per old, rounded up.
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
