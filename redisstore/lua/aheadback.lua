-- Gives back units that were taken for later requests, see ahead.lua. If the key was reset since, it
-- gives back nothing and returns -1. Each return of units has a number. If the script has run with this
-- number before, it does nothing and returns 0: so a process that does not know whether a return has
-- arrived sends it again.
--
-- KEYS and ARGV: as for settle.lua with one key; then the hash of ahead.lua, and the two arguments that
-- ahead.lua adds, and the number of this return. For each key, a process sends one return after the
-- other, with rising numbers.

local process, number, id = ARGV[#ARGV - 2], tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV]
local known = redis.pcall('HGET', KEYS[3], process)
local second, first, last, back, text
if type(known) == 'string' then second, first, last, back, text = string.match(known, '^(%d+) (%d+) (%d+) (%d+) (.*)$') end
if not first or tonumber(first) > number then return -1 end
if tonumber(back) >= tonumber(id) then return 0 end
redis.call('HSET', KEYS[3], process, table.concat({second, first, last, id, text}, ' '))
KEYS[3] = nil

