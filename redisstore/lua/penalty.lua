-- Wraps take.lua for asks with a penalty. If a block denies one of the asks, none is charged. Otherwise the
-- denial of an ask is a strike, unless the ask says that it is none.
--
-- KEYS: as for take.lua; then one key for each ask with a penalty. ARGV: as for take.lua; then for each ask
-- with a penalty its number among the asks, After, Within, For, Most, and 1 if its denial is a strike or
-- otherwise 0; and then the number of asks with a penalty.
--
-- The script returns what take.lua returns. But if a block denies an ask, the first number of the ask is
-- not 0 but for how many microseconds the block still lasts, plus 1.

local penalties = {}
barred = {}
do
  local now, count = s * 1e6 + us, ARGV[#ARGV] + 0
  local v, k = #ARGV - 6 * count, #KEYS - count
  for i = 1, count do
    local p = record_of(KEYS[k + i], v + 1, now)
    p.place, p.strikes = ARGV[v] + 0, ARGV[v + 5] == '1'
    penalties[i], v = p, v + 6
    if p.ends > now then barred[p.place] = p.ends - now end
  end
  for i = #ARGV, #ARGV - 6 * count, -1 do ARGV[i] = nil end
  for i = #KEYS, k + 1, -1 do KEYS[i] = nil end
  if next(barred) then ARGV[2] = ARGV[2] + 64 end -- so that the general code decides
end

local function judge()
