end

local reply = decide()
local text = reply
if type(reply) == 'table' then
  local items = {}
  for i, v in ipairs(reply) do items[i] = type(v) == 'number' and string.format('%.0f', v) or v end
  text = table.concat(items, ',')
end
redis.pcall('HSET', marker, process, first .. ' ' .. id .. ' ' .. text)
redis.pcall('PEXPIRE', marker, 60000)
return reply
