-- Gives back units that were taken ahead, see ahead.lua. If the key was reset since, it gives back
-- nothing and returns -1.
--
-- KEYS and ARGV: as for settle.lua with one key; then the two arguments that ahead.lua adds.

local known = redis.pcall('HGET', KEYS[3], ARGV[#ARGV - 1])
local first = type(known) == 'string' and tonumber(string.match(known, '^%d+'))
if not first or first > tonumber(ARGV[#ARGV]) then return -1 end
KEYS[3] = nil

