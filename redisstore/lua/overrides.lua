
-- Reads what has changed in the list of overrides of a limiter since some version; see override.lua.
--
-- KEYS: the hash, versions, lifted. ARGV: one argument for start.lua; the random number and the number of the version.
-- The script returns the seconds and microseconds of now; the random number and the number of the list, which are 0
-- if there is none; 1 if the whole list follows, or otherwise 0; the fields that were set, each followed by its
-- value; and the fields that were lifted. Both are in the order of the changes.

local list, versions, lifted = KEYS[1], KEYS[2], KEYS[3]
local known, since = call('HMGET', list, 'list', 'number', 'floor'), ARGV[3] + 0
local name, number, floor = known[1] or '0', (known[2] or 0) + 0, (known[3] or 0) + 0
local whole = name ~= ARGV[2] or since < floor or since > number
local from = whole and '-inf' or '(' .. format('%.0f', since)

local fields, set = call('ZRANGEBYSCORE', versions, from, '+inf'), {}
for i = 1, #fields, 1000 do
  local last = math.min(i + 999, #fields)
  local values = call('HMGET', list, unpack(fields, i, last))
  for j = i, last do set[2 * j - 1], set[2 * j] = fields[j], values[j - i + 1] or '' end
end
local gone = whole and {} or call('ZRANGEBYSCORE', lifted, from, '+inf')
return {s, us, name, format('%.0f', number), whole and 1 or 0, set, gone}
