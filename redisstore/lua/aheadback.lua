-- Gives back units that were taken ahead, see ahead.lua. It gives back nothing, and returns -1, if
-- the key was reset after that.
--
-- KEYS and ARGV: as for settle.lua with one key; then those that ahead.lua adds.

local known = redis.pcall('HGET', KEYS[3], ARGV[#ARGV - 1])
local first = type(known) == 'string' and tonumber(string.match(known, '^%d+'))
if not first or first > tonumber(ARGV[#ARGV]) then return -1 end
KEYS[3] = nil

