-- How units are given back to a sliding window log.

-- around returns five elements of the list: the total before the i-th oldest entry (or the header), the
-- instant and the total of this entry, and those of the entry after it.
local function around(s, i) return call('LRANGE', s.key, 2 * i, 4 + 2 * i) end

-- entry_at returns the number of the entry at the given instant, and what around returns for it, or nil
-- if there is no such entry. It first guesses that each later entry has one receipt, and counts the later
-- receipts. If the guess is wrong, it searches by interpolation between instants, because many logs are
-- filled evenly. Every fourth step is a bisection instead.
local function entry_at(s, instant)
  local low, high, from, to, try = 0, s.len - 1, s.oldest, s.newest, 0
  if instant == to then return high, around(s, high) end
  local e, i = s.settled
  if e then i = high - call('ZCOUNT', receipts().list_of(s.key), '(' .. whole(e.pos), 1125899906842624) end
  while low < high and instant >= from do -- it is from low on, and before high
    if not i or i < low or i >= high then
      try = try + 1
      i = low + floor((high - low) * (try % 4 == 0 and 0.5 or (instant - from) / (to - from)))
    end
    local near = around(s, i)
    local t = numbers(near[2]) or corrupt(s.key)
    if t == instant then return i, near end
    if t < instant then low, from = i + 1, t + 1 else high, to = i, t end
    i = nil
  end
end

-- moved is the largest number of entries whose totals one call changes.
local moved = 4096

-- pushed pushes the elements of values to the list s.key with the given command. Each second element
-- is a total, which the function change converts first. If the command is LPUSH, the last element is
-- pushed first.
local function pushed(s, command, values, change)
  local first, last, step = 1, #values, 1
  if command == 'LPUSH' then first, last, step = last, 1, -1 end
  for j = first, last, 1000 * step do
    local some, size = {}, 0
    for k = j, step * min(step * (j + 999 * step), step * last), step do
      size = size + 1
      some[size] = k % 2 == 1 and values[k] or format('%.0f', change(split(s, values[k])))
    end
    call(command, s.key, unpack(some))
  end
end

-- fill removes all holes (notes of units that were given back). For this, it changes the totals either of
-- the entries from the oldest hole on, or of the entries up to the newest hole, whichever are fewer. If both
-- are too many for one call, it changes nothing.
local function fill(s)
  local h = holes()
  local i = h.from_total(s, 0, h.number(s, 1, 1))
  local last = h.from_total(s, i, h.number(s, h.count(s), 2))
  if min(s.len - i, last + 1) > moved then return end
  local all, so_far = s.given, 0
  s.given, s.records = nil, ''
  if s.len - i < last + 1 then
    local after = call('LRANGE', s.key, 1 + 2 * i, -1)
    call('LTRIM', s.key, 0, 2 * i)
    pushed(s, 'RPUSH', after, function(total, hole)
      so_far = so_far + hole
      return total - so_far
    end)
    s.base, s.total = s.base - all, s.total - all
  else
    local before = call('LRANGE', s.key, 1, 2 + 2 * last)
    call('LTRIM', s.key, 3 + 2 * last, -1)
    pushed(s, 'LPUSH', before, function(total, hole)
      so_far = so_far + hole
      return total + so_far - hole
    end)
    call('LPUSH', s.key, header(s))
  end
end

-- pop removes the newest entry after all its units were given back. The entry before it becomes the
-- newest one. The newest entry must have no hole. So if this entry has one, pop subtracts the hole from
-- its total and from the base.
local function pop(s)
  call('LTRIM', s.key, 0, -3)
  s.len = s.len - 1
  if s.len == 0 then return end
  local tail = call('LRANGE', s.key, -2, -1)
  local total, hole = split(s, tail[2])
  s.newest, s.total = numbers(tail[1]), total - hole
  if hole == 0 then return end
  holes().leave(s, total, hole)
  s.base = s.base - hole
  call('LSET', s.key, -1, format('%.0f', s.total))
end

-- drop removes the i-th oldest entry, which is not the newest, when its last n units are given back.
-- stored and hole are its stored total and its hole. after is the text of the next entry's total; this
-- entry takes over the hole.
local function drop(s, i, n, stored, hole, after)
  s.len = s.len - 1
  holes().leave(s, stored, hole)
  if i == 0 then
    call('LTRIM', s.key, 2, -1) -- what is the first element now becomes the header
    s.base = s.base + n
    return
  end
  call('LSET', s.key, 1 + 2 * i, '')
  call('LSET', s.key, 2 + 2 * i, '')
  call('LREM', s.key, i < s.len / 2 and 2 or -2, '')
  if i == s.len - 1 then
    s.total, s.base = s.total - hole - n, s.base - hole
    call('LSET', s.key, -1, format('%.0f', s.total))
    return
  end
  local total, more = split(s, after)
  holes().add(s, total, hole + n)
  s.base = s.base + n
  call('LSET', s.key, 2 + 2 * i, format('%.0f-%.0f', total, more + hole + n))
end

-- give gives back n units of the entry at the given instant. If the log has no such entry, or the entry
-- has fewer units, give does nothing.
local function give(s, instant, n)
  local i, near = entry_at(s, instant)
  if not i then return end
  local stored, hole = split(s, near[3])
  local before = i > 0 and split(s, near[1]) or s.base - (s.given or 0)
  local units = stored - hole - before
  if units < n then return end
  if i == s.len - 1 then
    s.total = s.total - n
    if units == n then pop(s) else call('LSET', s.key, -1, format('%.0f', s.total)) end
  elseif units == n then
    drop(s, i, n, stored, hole, near[5])
  else
    s.base = s.base + n
    if i == 0 then return end
    holes().add(s, stored, n)
    call('LSET', s.key, 2 + 2 * i, format('%.0f-%.0f', stored, hole + n))
  end
end

-- settle removes n units from the entry at instant, if the log still has that entry. If clock is a number, it
-- becomes the clock of the log. If the key has no receipts any more, settle removes the holes of the log,
-- because the fast path cannot read holes. While the key has receipts, only the general code decides, which can.
function log.settle(s, instant, n, clock)
  if n > 0 and s.len > 0 then give(s, instant, n) end
  if not s.marked and s.given then fill(s) end
  if type(clock) == 'number' then s.clock = clock end
  call('LSET', s.key, 0, header(s))
end

-- give_back does what settle does, but it may be the first function of the script that writes.
function log.give_back(s, instant, n, clock)
  call('LTRIM', s.key, 0, -1) -- this write changes nothing, but after it Redis accepts LSET even without memory
  log.settle(s, instant, n, clock)
end
