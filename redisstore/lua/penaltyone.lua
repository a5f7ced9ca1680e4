-- Makes the scripts of one.lua count denials as strikes. If several callers share a call, their denials are counted one
-- after the other. If one of these denials begins a block, the block denies all callers after this one.
--
-- KEYS: the key; the key of its penalty. ARGV: as for one.lua, without units to take ahead; then After, Within, For
-- and Most, and 1 if the denial of a caller is a strike or otherwise 0.

local penalty, strikes = record_of(KEYS[2], #ARGV - 4, s * 1e6 + us), ARGV[#ARGV] == '1'
KEYS[2] = nil
for i = #ARGV, #ARGV - 4, -1 do ARGV[i] = nil end
barred, stopped = {}, penalty.ends > s * 1e6 + us

-- judge returns for how many microseconds a block denies the next caller, who wants n units, or 0. granted is whether
-- the rule would grant them.
local function judge(n, granted)
  local now = s * 1e6 + us
  if penalty.ends > now then
    if penalty.moved and strikes then
      penalty.moved = not keep(penalty, now)
    end
    return penalty.ends - now
  end
  return strikes and n > 0 and not granted and strike(penalty, now) or 0
end

