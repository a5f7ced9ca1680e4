end

local reply = decide()
local passes, answers = ARGV[2] % 8 < 4, {}
for i = 1, #reply / 5 do
  local first = 5 * i - 4
  passes = passes and (reply[first] == 1 or ARGV[8 * i - 3] == '1')
  for j = first, first + 4 do
    local v = reply[j]
    answers[j] = type(v) == 'number' and format('%.0f', v) or v
  end
end
if passes then
  local i = -4
  kept = string.gsub(kept, '%?', function()
    i = i + 5
    return table.concat(answers, ' ', i, i + 4)
  end)
  call('SET', record, format('%.0f %s 0 %s', now, ttl, kept), 'PX', format('%.0f', math.ceil(ttl / 1000) + pad))
end
return reply
