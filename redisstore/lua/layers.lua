-- Layers: the debt of a bucket, divided among the receipts of its key (charges that can be given
-- back).
--
-- A receipt belongs to a charge. What can be given back for the receipt is limited by the debt of the key
-- since that charge: at most the lowest debt in this time. The sum of the layer of the receipt and of the
-- layers of all older receipts is this lowest debt. So debt that drains is taken from the layer of the
-- newest receipt, and then from those of older ones. Debt that is given back for a receipt is taken from
-- the layer of this receipt, and then from those of older ones.
--
-- The set of receipts has a member for each layer that is not empty, and one for the sum of all layers.
-- The score of a layer is 2^51 and the position of its receipt; that of the sum is 2^52:
--
--   position=whole frac fine
--   =whole frac fine
--
-- A charge that may have to be given back at once does not take drained debt from the layers, because the
-- layers might have to be restored. The charge only notes how much debt to take, and from which position
-- on. The note is a member like that of a layer, with a + before it and the score 2^52+1. The next call
-- takes this debt from the layers.
--
-- So a charge and a settlement each look at few receipts. Each layer becomes empty only once, so
-- over time the calls empty at most one layer for each charge.

local base, top, due, nothing = 2251799813685248, 4503599627370496, 4503599627370497, {0, 0, 0}

-- least returns the lesser of two levels.
local function least(a, b) return below(a, b) and a or b end

-- minus returns the level a minus b, or zero if b is more than a.
local function minus(s, a, b)
  local whole, frac, fine = a[1] - b[1], a[2] - b[2], a[3] - b[3]
  if fine < 0 then frac, fine = frac - 1, fine + grain(s.gain) end
  if frac < 0 then whole, frac = whole - 1, frac + s.unit end
  if whole < 0 then return {0, 0, 0} end
  return {whole, frac, fine}
end

-- sum returns the sum of two levels.
local function sum(s, a, b)
  local whole, frac, fine = a[1] + b[1], a[2] + b[2], a[3] + b[3]
  local fines = grain(s.gain)
  if fine >= fines then frac, fine = frac + 1, fine - fines end
  if frac >= s.unit then whole, frac = whole + 1, frac - s.unit end
  return {whole, frac, fine}
end

-- weight returns what one unit costs a key that warms up. The argument limit is the full limit of the key,
-- and the argument units is how many of them it has so far. One unit costs limit/units tokens. The result
-- is exact. It is a level, rounded down, followed by the numbers rest and units: the level lacks the
-- fraction rest/units of a fine part.
local function weight(s, units, limit)
  local whole, over = divide(limit, units)
  local frac, r = muldiv(over, s.unit, units)
  local fine, rest = muldiv(r, grain(s.gain), units)
  return {whole, frac, fine, rest, units}
end

-- cost returns what n units cost together. The argument weight is what one unit costs: a result of the
-- function weight, or a level. The sum is rounded up once, not for each unit.
local function cost(s, weight, n)
  local fines, rest = grain(s.gain), weight[4] or 0
  local q, r, f = scaled(weight[2], weight[3], s.unit, fines, n)
  if rest == 0 then return {weight[1] * n + q, r, f} end
  local more, left = muldiv(rest, n, weight[5])
  if left > 0 then more = more + 1 end
  more, f = divide(f + more, fines)
  more, r = divide(r + more, s.unit)
  return {weight[1] * n + q + more, r, f}
end

-- weight_of returns what each unit of the charge with the receipt e has cost. s is the state of the
-- key.
local function weight_of(s, e)
  local each = e.each
  return each[3] and each or weight(s, each[1], each[2])
end

-- read_layer returns the level in a member of the set, and its position.
local function read_layer(v)
  local pos, a, b, c = match(v, '^%+?(%d*)=(%d+) (%d+) (%d+)$')
  return {tonumber(a), tonumber(b), tonumber(c)}, tonumber(pos)
end

-- put stores level with this score, and removes the member old if there is one. pos is the position of
-- a layer, or '' for the sum of all layers. A level of zero is not stored.
local function put(list, score, pos, old, level)
  if old then call('ZREM', list, old) end
  if below(nothing, level) then
    call('ZADD', list, whole(score), format('%s=%.0f %.0f %.0f', pos, level[1], level[2], level[3]))
  end
end

-- get returns the level with this score, and its member of the set if it has one.
local function get(list, score)
  local old = call('ZRANGEBYSCORE', list, whole(score), whole(score))[1]
  return old and read_layer(old) or nothing, old
end

-- shrink subtracts level from the sum of the layers.
local function shrink(s, list, level)
  if not below(nothing, level) then return end
  local total, old = get(list, top)
  put(list, top, '', old, minus(s, total, level))
end

-- empty takes level from the layer at the position pos and then from the layers before it, until
-- nothing is left to take or the layers are empty. It returns how much it has taken.
local function empty(s, list, pos, level)
  local rest, from, some, low, old, left = level, whole(base + pos), 8
  while not old and below(nothing, rest) do
    local found = call('ZREVRANGEBYSCORE', list, from, whole(base), 'LIMIT', 0, some)
    if #found == 0 then break end
    for _, v in ipairs(found) do
      local layer, at = read_layer(v)
      from = '(' .. whole(base + at)
      if below(rest, layer) then
        old, left, rest = v, minus(s, layer, rest), nothing
        break
      end
      low, rest = at, minus(s, rest, layer)
    end
    some = 200
  end
  if low then call('ZREMRANGEBYSCORE', list, whole(base + low), whole(base + pos)) end
  if old then
    local _, at = read_layer(old)
    put(list, base + at, whole(at), old, left)
  end
  return minus(s, level, rest)
end

layers = {}

-- flush takes from the layers what an earlier charge has only noted.
function layers.flush(s, list)
  local level, old = get(list, due)
  if not old then return end
  local _, pos = read_layer(old)
  call('ZREM', list, old)
  empty(s, list, pos, level)
end

-- unflush is called when the newest charge is given back. It removes the note that this charge has made
-- for the next call, and adds the debt in the note to the sum of the layers again.
function layers.unflush(s, list)
  local level, old = get(list, due)
  if not old then return end
  local total, was = get(list, top)
  put(list, top, '', was, sum(s, total, level))
  call('ZREM', list, old)
end

-- take gives back at most level for the receipt at the position pos. It returns how much it gives
-- back.
function layers.take(s, list, pos, level)
  level = empty(s, list, pos, level)
  shrink(s, list, level)
  return level
end

-- add adds the layer of a new receipt at the position pos, which is the last. low is the debt of
-- the key after the charge.
function layers.add(s, list, pos, low)
  local total, old = get(list, top)
  put(list, top, '', old, low)
  put(list, base + pos, whole(pos), nil, minus(s, low, total))
end

-- lift is called when the receipt at the position pos ends. It adds its layer to that of the next
-- receipt, at the position later. If later is nil, this part of the debt belongs to no receipt any
-- more.
function layers.lift(s, list, pos, later)
  local layer, old = get(list, base + pos)
  if not old then return end
  if later then
    local above, was = get(list, base + later)
    put(list, base + later, whole(later), was, sum(s, above, layer))
  else
    shrink(s, list, layer)
  end
  call('ZREM', list, old)
end

-- rescale converts all layers, and the costs of units in the receipts, to the rate of s. The argument
-- from has the rate that they had before. For each layer, the sum of this and all older layers is
-- rounded down.
local function rescale(s, list, from)
  local sums, below_it, all = nothing, nothing, call('ZRANGEBYSCORE', list, whole(base), '(' .. whole(top))
  for _, v in ipairs(all) do
    local layer, pos = read_layer(v)
    sums = sum(from, sums, layer)
    local now = converted(from, sums, s.gain, s.unit, true)
    put(list, base + pos, whole(pos), v, minus(s, now, below_it))
    below_it = now
  end
  local _, old = get(list, top)
  put(list, top, '', old, below_it)
  if not s.first or from.unit == s.unit and grain(from.gain) == grain(s.gain) then return end
  for _, v in ipairs(call('ZRANGEBYSCORE', list, whole(-base), '(0')) do
    local e = receipts().entry(v)
    if e and s.tail and e.pos == s.tail.pos then e = s.tail end -- use the copy that this call may change further
    if e and e.each then
      e.each = converted(from, weight_of(from, e), s.gain, s.unit, true)
      receipts().replace(list, e)
    end
  end
end

-- save writes to the layers what this call has recorded in s: a change of the rate, and the lowest
-- debt since the last call.
function layers.save(s, list)
  layers.flush(s.rescaled or s, list)
  if s.rescaled then rescale(s, list, s.rescaled) end
  if not s.low then return end
  local total, old = get(list, top)
  if not below(s.low, total) then return end
  local gone = minus(s, total, s.low)
  if s.returnable or below(nothing, s.low) then
    if s.returnable then
      put(list, due, '+' .. whole(s.tail.pos), nil, gone)
    else
      empty(s, list, base - 1, gone)
    end
    put(list, top, '', old, s.low)
  else
    call('ZREMRANGEBYSCORE', list, whole(base), whole(top))
  end
end
