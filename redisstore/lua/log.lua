-- Sliding window log: when units were granted. Units granted at one instant are one entry.
--
-- A state is stored as a list: a header, then an instant and a total for each entry, oldest
-- first. The header is decimal numbers, separated by spaces:
--
--   per clock base
--
-- per is the length of the window under which the state was written. clock is the instant of the
-- last charge or change of per, if that is later than the newest entry. base is the total before
-- the oldest entry. The total of an entry is how many units were ever granted up to and including
-- it. So the units of several adjacent entries are the difference of two totals, and an entry can
-- be found by bisection. If units were given back, the header and the totals have further parts,
-- which holes.lua describes.

local log = {}

-- holes returns the functions of holes.lua.
local holes

-- at returns the instant of the i-th oldest entry. i begins at 0.
local function at(s, i)
  if i == s.len - 1 then return s.newest end
  return numbers(call('LINDEX', s.key, 1 + 2 * (s.drop + i))) or corrupt(s.key)
end

-- total returns the total of the i-th oldest entry.
local function total(s, i)
  if i < 0 then return s.base end
  if i == s.len - 1 then return s.total end
  if s.given then return holes().total(s, i) end
  return numbers(call('LINDEX', s.key, 2 + 2 * (s.drop + i))) or corrupt(s.key)
end

-- first returns the number of the first entry, from low on, for which the function holds returns
-- true. If it returns true for none, the result is the newest entry.
local function first(s, low, holds)
  local high = s.len - 1
  while low < high do
    local middle = floor((low + high) / 2)
    if holds(middle) then high = middle else low = middle + 1 end
  end
  return low
end

-- used returns how many of the oldest entries have left the window at now, and how many units the
-- other entries have.
local function used(s, now)
  if s.len == 0 or now - s.newest >= s.per then return s.len, 0 end
  if now - s.oldest < s.per then return 0, s.total - s.base end
  local gone = first(s, 1, function(i) return now - at(s, i) < s.per end)
  return gone, s.total - total(s, gone - 1)
end

-- forget drops as many of the oldest entries as the argument gone says.
local function forget(s, gone)
  if gone == 0 then return end
  if gone == s.len then s.given, s.records = nil, '' end
  if s.given then holes().forget(s, gone) else s.base = total(s, gone - 1) end
  s.drop, s.len = s.drop + gone, s.len - gone
  if s.len > 0 then s.oldest = at(s, 0) end
end

local function header(s)
  local given = s.given and format(' -%.0f', s.given) .. s.records or ''
  return format('%.0f %.0f %.0f', s.per, s.clock, s.base) .. given .. ending(s)
end

function log.fresh(c, now, key)
  return {key = key, stored = 0, drop = 0, len = 0, per = c[2], clock = now, last = now, base = 0, total = 0, records = ''}
end

function log.load(key)
  local items = call('LLEN', key)
  if items == 0 then return nil end
  local s = {key = key, stored = (items - 1) / 2, drop = 0, exists = true}
  s.len = s.stored
  local head = call('LRANGE', key, 0, 1)
  head[1], s.marked, s.first, s.limit = unmarked(head[1])
  local per, clock, base, more = match(head[1], '^(%d+) (-?%d+) (%d+)(.*)$')
  s.per, s.clock, s.base = numbers(per, clock, base)
  if not s.per or s.per < 1 or items % 2 == 0 then return corrupt(key) end
  s.given, s.records = nil, ''
  if more ~= '' then
    s.given, s.records = match(more, '^ %-(%d+)(.*)$')
    s.given = numbers(s.given)
    if not s.given or #s.records % 51 > 0 then return corrupt(key) end
  end
  s.total = s.base
  if s.len > 0 then
    local tail = call('LRANGE', key, -2, -1)
    s.oldest, s.newest, s.total = numbers(head[2], tail[1], tail[2])
  end
  if not s.total or s.total < s.base then return corrupt(key) end
  s.clock = max(s.clock, s.newest or s.clock)
  s.last = s.clock
  return s
end

-- heal moves a state whose time is far ahead of now to now: all units that are in use become one
-- entry at now.
function log.heal(s, now)
  if s.clock - now <= 2 * s.per then return false end
  s.dropped, s.marked = s.dropped or s.marked, nil
  local _, units = used(s, s.clock)
  s.drop, s.len = s.stored, units > 0 and 1 or 0
  s.clock, s.last, s.oldest, s.newest, s.base, s.total = now, now, now, now, 0, units
  s.given, s.records = nil, ''
  s.new = s.len == 1
  return true
end

-- adopt changes s to the length of the window in c, and reports whether that is a new length.
-- Entries that have left the old window are dropped, so that a longer window does not count them
-- again.
function log.adopt(s, c, now)
  if s.per == c[2] then return false end
  s.dropped, s.marked = s.dropped or s.marked, nil -- it is no longer known which entries have receipts
  now = max(now, s.clock)
  forget(s, (used(s, now)))
  s.clock, s.last, s.per = now, now, c[2]
  return true
end

function log.look(a, s, now, want)
  local gone, units = used(s, now)
  local left = a.config[1] - units
  a.left, a.retry, a.delay, a.reset = max(left, 0), 0, 0, 0
  if units > 0 then a.reset = s.per - (now - s.newest) end
  if want > a.config[1] then
    a.retry = -1
  elseif want > left then
    local base, must = s.total - units, want - left
    local i = s.given and holes().reach(s, gone, base + must)
      or first(s, gone, function(i) return total(s, i) - base >= must end)
    a.retry = s.per - (now - at(s, i))
  end
end

-- charge charges n units at now. It drops only the entries that had already left the window at the
-- previous charge. It keeps entries that have left the window since then, because this charge may be
-- given back. The clock of the log then goes back to the instant of the previous charge, at which these
-- entries still count.
function log.charge(a, s, now, n)
  if s.marked or a.receipt then receipts().charge(a, s, now, n, {0, 0, 0}) end
  forget(s, (used(s, s.clock)))
  s.clock, s.last = now, now
  s.total = s.total + n
  if s.len > 0 and s.newest == now then
    s.merged = not s.new
  else
    s.appended, s.len, s.newest = true, s.len + 1, now
    if s.len == 1 then s.oldest = now end
  end
  a.left, a.reset = a.left - n, s.per
end

function log.save(key, s, now, pad)
  local ends = s.clock
  if s.len > 0 then ends = max(ends, s.newest + s.per) end
  local ms = lifetime(s, ends - now, pad)
  if s.drop == s.stored then
    if s.exists then call('DEL', key) end -- after a write, Redis would accept the RPUSH below even without memory
    call('RPUSH', key, header(s))
  elseif s.drop > 0 then
    call('LTRIM', key, 1 + 2 * s.drop, -1) -- in place of an LPOP for each entry
    call('LPUSH', key, header(s))
  else
    call('LSET', key, 0, header(s))
  end
  if s.appended or s.new then
    call('RPUSH', key, format('%.0f', s.newest), format('%.0f', s.total))
  elseif s.merged then
    call('LSET', key, -1, format('%.0f', s.total))
  end
  call('PEXPIRE', key, ms)
  if s.marked or s.dropped then receipts().save(s, now, pad) end
end

-- encode returns a text that is different after each grant. settle.lua compares it to see whether
-- the list has changed.
function log.encode(s)
  if s.len == 0 then return header(s) end
  return header(s) .. ' ' .. format('%.0f %.0f', s.newest, s.total)
end

kinds.s = log
