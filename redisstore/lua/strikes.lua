
-- Counts a strike for each of several keys, whose requests were denied before.
--
-- KEYS: the keys of the penalties. ARGV: one argument for start.lua; then for each key After, Within, For
-- and Most. The script returns for each key for how many microseconds it is blocked from now on, or 0.

local now, rests = s * 1e6 + us, {}
for i, key in ipairs(KEYS) do
  local p = record_of(key, 4 * i - 2, now)
  if p.ends > now then rests[i] = p.ends - now else rests[i] = strike(p, now) end
end
return rests
