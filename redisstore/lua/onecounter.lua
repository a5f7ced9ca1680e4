
-- A state of this length of windows, which is not ahead of now, and whose previous
-- count times the length is less than 2^53.
local from = 4
do
  local key, prefix, limit = KEYS[1], ARGV[2], ARGV[3] + 0
  local per, now = prefix + 0, s * 1e6 + us
  local offset, v, prev, cur = now % per, call('GET', key), '0', 0
  if v then
    prev = nil
    if sub(v, 1, #prefix) == prefix then
      local s0, us0, before, count = match(v, '^(%d+) (%d+) (%d+) (%d+)$', #prefix + 1)
      if s0 then
        local ago = now - (s0 * 1e6 + us0)
        if ago >= 0 and count + 0 < 9007199254740992 then
          if ago <= offset then
            prev, cur = before, count + 0
          else
            prev = ago - offset <= per and count or '0'
          end
        end
      end
    end
  end
  local weight = prev and prev * (per - offset) or 9007199254740992
  if weight < 9007199254740992 then
    local rest = weight % per
    local used = (weight - rest) / per + cur
    if rest > 0 then used = used + 1 end
    local after, all, ahead = used, true, ARGV[5] and ARGV[4]
    for i = ahead and 6 or 4, #ARGV do
      local more = after + ARGV[i]
      if more <= limit then after = more elseif ARGV[i] ~= '0' then all = false end
    end
    if all and ahead then after = after + math.max(0, math.min(ahead, limit - after - ARGV[5])) end
    if after > used then
      local ms = (2 * per - offset) / 1000 + pad
      local value = prefix .. s .. ' ' .. us .. ' ' .. prev .. ' ' .. format('%.0f', cur + after - used)
      call('SET', key, value, 'PX', ms - ms % 1)
    end
    if v then return s .. ' ' .. us .. ' ' .. v end
    return s .. ' ' .. us
  end
end

