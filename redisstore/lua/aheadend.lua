
end

local reply = decide()
local text = reply
if type(reply) == 'table' then
  local items = {}
  for i, v in ipairs(reply) do items[i] = type(v) == 'number' and string.format('%.0f', v) or v end
  text = table.concat(items, ',')
end
local second = redis.call('TIME')[1]
redis.pcall('HSET', marker, process, table.concat({second, first or id, id, back or 0, text}, ' '))
redis.pcall('PEXPIRE', marker, 60000)
-- Processes that have died leave their fields in the hash. So each call looks at two fields, chosen at
-- random, and drops those that nobody has used for 60 seconds. A hash that nobody uses expires after
-- the same time.
local others = redis.pcall('HRANDFIELD', marker, 2, 'WITHVALUES')
for i = 2, #others, 2 do
  if second - (string.match(others[i], '^%d+') or 0) > 60 then redis.pcall('HDEL', marker, others[i - 1]) end
end
return reply
