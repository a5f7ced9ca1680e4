-- Gives back what was charged, because another part of the decision denied it. A state that
-- no other decision has changed since becomes what it was before the charge. From a state
-- that has changed, only what has not yet drained or left is taken off.
--
-- ARGV for each key: kind, n, the instant of the charge, the state before and after it.

local function give_back(key, kind, n, instant, before, after)
  local v = call('GET', key)
  if not v then return end
  if v == after then
    if before == '' then call('DEL', key) else call('SET', key, before, 'KEEPTTL') end
    return
  end
  local s = kind.load(key)
  if s.last < instant then return end
  kind.give_back(s, instant, n)
  call('SET', key, s.encode(s), 'KEEPTTL')
end

-- write stores the time and the total of entry i of the list of s.
local function write(s, i, when, units)
  call('LSET', s.key, 1 + 2 * i, format('%.0f', when))
  call('LSET', s.key, 2 + 2 * i, format('%.0f', units))
end

-- give_back_entry takes n units off the entry at instant, if that has so many. The later
-- entries, whose totals must be lowered, are those of one round trip. If there are more
-- than a thousand, the units stay charged until they leave the window.
local function give_back_entry(key, n, instant, before, after)
  local s = log.load(key)
  if not s then return end
  local untouched = log.encode(s) == after
  if untouched and before == '' then return call('DEL', key) end
  local i = s.len - 1
  while i > 0 and i > s.len - 1000 and at(s, i) > instant do i = i - 1 end
  if i < 0 or at(s, i) ~= instant then return end
  local units = total(s, i) - total(s, i - 1)
  if units < n then return end
  local step = units == n and 1 or 0
  for j = i + step, s.len - 1 do write(s, j - step, at(s, j), total(s, j) - n) end
  if step == 1 then call('RPOP', key, 2) end
  if untouched then
    s.clock = tonumber(match(before, '^%S+ (%S+)'))
    call('LSET', key, 0, header(s))
  end
end

for i, key in ipairs(KEYS) do
  local v = 5 * i - 5
  local kind, n, instant = kinds[ARGV[v + 1]], tonumber(ARGV[v + 2]), tonumber(ARGV[v + 3])
  if kind == log then
    give_back_entry(key, n, instant, ARGV[v + 4], ARGV[v + 5])
  else
    give_back(key, kind, n, instant, ARGV[v + 4], ARGV[v + 5])
  end
end
return 0
