-- Gives back units that were taken ahead, see ahead.lua. If the key was reset since, it gives back
-- nothing and returns -1. It does nothing and returns 0 if it has run with the same number before: so a
-- process that does not know whether a return has arrived makes it once more.
--
-- KEYS and ARGV: as for settle.lua with one key; then the hash, and the two arguments that ahead.lua
-- adds, and the number of this return. A process makes one return of a key after the other, with rising
-- numbers.

local process, number, id = ARGV[#ARGV - 2], tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV]
local known = redis.pcall('HGET', KEYS[3], process)
local second, first, last, back, text
if type(known) == 'string' then second, first, last, back, text = string.match(known, '^(%d+) (%d+) (%d+) (%d+) (.*)$') end
if not first or tonumber(first) > number then return -1 end
if tonumber(back) >= tonumber(id) then return 0 end
redis.call('HSET', KEYS[3], process, table.concat({second, first, last, id, text}, ' '))
KEYS[3] = nil

