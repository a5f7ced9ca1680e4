-- Holes: units of a sliding window log that were given back.
--
-- Each entry stores a total: all units granted up to it. If units of an entry are given back, its total
-- and all later ones would have to change. Instead, the entry notes how many of its units were given back.
-- This number is its hole. It follows the total, after a -, as in 120-5. The base grows by the same number.
-- So the true total of an entry is the stored one plus the holes of all entries after it. The newest entry
-- has no hole, so the sum of all units in the log is the total of the newest entry minus the base, as in a
-- log without holes.
--
-- The header ends in a space, a -, the sum of all holes, and at most 16 records, the oldest first. A record
-- describes a range of entries with holes by three numbers of 16 digits, each after a space: the stored
-- totals of the first and of the last entry in the range, and the sum of the holes. So the sum of the holes
-- up to an entry needs only the sums of the earlier records, and the holes of a few entries of one record. An
-- entry whose units were all given back is removed, and the next one takes over its hole.

local made_holes

-- split reads v, the text of an entry's total, and returns the stored total and the hole (how many
-- units were given back).
local function split(s, v)
  local total, hole = tonumber(v), 0
  if not total then total, hole = numbers(match(v or '', '^(%d+)%-(%d+)$')) end
  if not total then return corrupt(s.key) end
  return total, hole
end

-- stored returns the stored total of the i-th oldest entry, and its hole. i begins at 0.
local function stored(s, i)
  if i == s.len - 1 then return s.total, 0 end
  return split(s, call('LINDEX', s.key, 2 + 2 * (s.drop + i)))
end

-- holes returns the functions for logs with holes. It defines them when it is first called.
function holes()
  if made_holes then return made_holes end
  local most, width = 16, 51

  -- number returns the j-th number of the k-th record.
  local function number(s, k, j) return tonumber(sub(s.records, width * k + 17 * j - 66, width * k + 17 * j - 51)) end

  -- count returns how many records s has.
  local function count(s) return #s.records / width end

  -- put removes the records with the numbers k up to last. If hole is not 0, it puts one record in their
  -- place, which has three numbers: those in the arguments from, to and hole.
  local function put(s, k, last, from, to, hole)
    local new = hole > 0 and format(' %016.0f %016.0f %016.0f', from, to, hole) or ''
    s.records = sub(s.records, 1, width * (k - 1)) .. new .. sub(s.records, width * last + 1)
  end

  -- place returns the number of the first record whose range ends at the stored total t or later.
  local function place(s, t)
    local low, high = 1, count(s) + 1
    while low < high do
      local middle = floor((low + high) / 2)
      if number(s, middle, 2) >= t then high = middle else low = middle + 1 end
    end
    return low
  end

  -- thin joins pairs of neighbouring records, so that at most three quarters of the records are left.
  -- It chooses the pairs that cover the fewest units together.
  local function thin(s)
    local spans = {}
    for k = 1, count(s) - 1 do spans[k] = number(s, k + 1, 2) - number(s, k, 1) end
    table.sort(spans)
    local limit, k = spans[floor(#spans / 2)], 1
    while k < count(s) do
      local from, to = number(s, k, 1), number(s, k + 1, 2)
      if to - from <= limit then put(s, k, k + 1, from, to, number(s, k, 3) + number(s, k + 1, 3)) end
      k = k + 1
    end
  end

  -- add adds n units to the hole of the entry with the stored total t.
  local function add(s, t, n)
    local k = place(s, t)
    s.given = (s.given or 0) + n
    if k <= count(s) and number(s, k, 1) <= t then
      put(s, k, k, number(s, k, 1), number(s, k, 2), number(s, k, 3) + n)
    else
      put(s, k, k - 1, t, t, n)
      if count(s) > most then thin(s) end
    end
  end

  -- leave removes the hole of the entry with the stored total t from the records. It is called when the
  -- entry leaves the log, or becomes its newest entry.
  local function leave(s, t, hole)
    if hole == 0 then return end
    local k = place(s, t)
    s.given = s.given - hole
    put(s, k, k, number(s, k, 1), number(s, k, 2), number(s, k, 3) - hole)
    if s.given == 0 then s.given = nil end
  end

  -- from_total returns the first entry, from low on, whose stored total is at least t.
  local function from_total(s, low, t)
    return first(s, low, function(i) return stored(s, i) >= t end)
  end

  -- each calls f with the number, the stored total and the hole of each entry from low up to high, until f
  -- returns true.
  local function each(s, low, high, f)
    local size = 32
    while low <= high do
      local some = call('LRANGE', s.key, 2 + 2 * (s.drop + low), 2 + 2 * (s.drop + min(low + size - 1, high)))
      for j = 1, #some, 2 do
        if f(low + (j - 1) / 2, split(s, some[j])) then return end
      end
      low, size = low + size, 512
    end
  end

  -- before returns three numbers for the i-th oldest entry, whose stored total is t: the sum of all
  -- holes up to this entry; the number of the record that the entry is in, or of the next record; and
  -- the sum of this record's holes up to the entry.
  local function before(s, i, t)
    local all, k, part = 0, 1, 0
    while k <= count(s) and number(s, k, 2) <= t do
      all, k = all + number(s, k, 3), k + 1
    end
    if k <= count(s) and number(s, k, 1) <= t then
      local low = i > 64 and from_total(s, 0, number(s, k, 1)) or 0
      each(s, low, i, function(_, total, hole)
        if total >= number(s, k, 1) then part = part + hole end
      end)
    end
    return all + part, k, part
  end

  -- total returns the true total of the i-th oldest entry, which leaves out units that were given
  -- back.
  local function total(s, i)
    local t = stored(s, i)
    if i >= s.len - 2 then return t end -- the newest entry has no hole
    return t + s.given - before(s, i, t)
  end

  -- forget prepares s for the removal of as many of its oldest entries as the argument gone says: the
  -- true total of the last of them becomes the base.
  local function forget(s, gone)
    local t = stored(s, gone - 1)
    local all, k, part = before(s, gone - 1, t)
    s.base, s.given = t + s.given - all, s.given - all
    if part > 0 then put(s, k, k, t + 1, number(s, k, 2), number(s, k, 3) - part) end
    put(s, 1, k - 1, 0, 0, 0)
    if s.given == 0 then s.given = nil end
  end

  -- reach returns the first entry, from low on, whose true total (without units that were given back) is
  -- at least wanted.
  local function reach(s, low, wanted)
    local all, k = 0, 1
    while k <= count(s) and number(s, k, 2) + s.given - all - number(s, k, 3) < wanted do
      all, k = all + number(s, k, 3), k + 1
    end
    if k > count(s) then return from_total(s, low, wanted) end
    local i = from_total(s, 0, number(s, k, 1))
    if i > low and stored(s, i - 1) + s.given - all >= wanted then return from_total(s, low, wanted - s.given + all) end
    local found = s.len - 1
    each(s, i, s.len - 2, function(j, t, hole)
      all = all + hole
      if t + s.given - all < wanted then return false end
      found = j
      return true
    end)
    return found
  end

  made_holes = {add = add, leave = leave, each = each, from_total = from_total, number = number, count = count,
    total = total, forget = forget, reach = reach}
  return made_holes
end
