-- Wraps a script of one.lua for a call that takes units for later requests, see WithLeases. It stores
-- a copy of the reply, the note, in a hash that belongs to the key. If the reply is lost, the process
-- reads the note to see how many units the call has taken. A Reset deletes the hash together with the
-- key, so units that were taken before the Reset are not given back.
--
-- KEYS: the key; the hash. ARGV: as for one.lua; then the name of the process, and the number of
-- the call.
--
-- The hash has a field for each process: the second at which it last took units; the number of its
-- first call since the field was made; the number of its last call; the number of the last return of
-- units, see aheadback.lua; and the reply to the last call.

local marker, process, id = KEYS[2], ARGV[#ARGV - 1], ARGV[#ARGV]
KEYS[2], ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil, nil
local known, first, back = redis.pcall('HGET', marker, process), nil, nil
if type(known) == 'string' then first, back = string.match(known, '^%d+ (%d+) %d+ (%d+)') end

local function decide()
