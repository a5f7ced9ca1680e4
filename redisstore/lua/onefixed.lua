
-- A state of this length of windows, which is not ahead of now.
local from = 4
do
  local key, prefix, limit = KEYS[1], ARGV[2], ARGV[3] + 0
  local per, now = prefix + 0, s * 1e6 + us
  local offset, v, used = now % per, call('GET', key), 0
  if v then
    used = nil
    if sub(v, 1, #prefix) == prefix then
      local s0, us0, count = match(v, '^(%d+) (%d+) (%d+)$', #prefix + 1)
      if s0 then
        local ago = now - (s0 * 1e6 + us0)
        count = count + 0
        if ago >= 0 and count < 9007199254740992 then used = ago <= offset and count or 0 end
      end
    end
  end
  if used then
    local after, all, ahead = used, true, ARGV[5] and ARGV[4]
    for i = ahead and 6 or 4, #ARGV do
      local more = after + ARGV[i]
      if more <= limit then after = more elseif ARGV[i] ~= '0' then all = false end
    end
    if all and ahead then after = after + math.max(0, math.min(ahead, limit - after - ARGV[5])) end
    if after > used then
      local ms = (per - offset) / 1000 + pad
      call('SET', key, prefix .. s .. ' ' .. us .. ' ' .. format('%.0f', after), 'PX', ms - ms % 1)
    end
    if v then return s .. ' ' .. us .. ' ' .. v end
    return s .. ' ' .. us
  end
end

