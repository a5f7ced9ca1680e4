
-- A state of this rate in the short form, which is not ahead of now. All products
-- are less than 2^53, or so large that rounding does not matter.
local from = 6
do
  local key, prefix, gain, unit, burst = KEYS[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
  local full, v, debt = burst * unit, call('GET', key), 0
  if v then
    debt = nil
    if sub(v, 1, #prefix) == prefix then
      local s0, us0, parts = match(v, '^(%d+) (%d+) (%d+)$', #prefix + 1)
      if s0 then
        local elapsed = (s - s0) * 1e6 + (us - us0)
        parts = parts + 0
        if elapsed >= 0 and parts <= full then
          debt = parts - elapsed * gain
          if debt < 0 then debt = 0 end
        end
      end
    end
  end
  if debt and full + 2 * unit < 9007199254740992 then
    local after, all, ahead = debt, true, ARGV[7] and ARGV[6]
    for i = ahead and 8 or 6, #ARGV do
      local more = after + ARGV[i] * unit
      if more <= full then after = more else all = false end
    end
    if all and ahead then
      local room = full - after
      local n = math.min(ahead, (room - room % unit) / unit - ARGV[7])
      if n > 0 then after = after + n * unit end
    end
    if after > debt then
      local ms = after / gain / 1000 + pad
      call('SET', key, prefix .. s .. ' ' .. us .. ' ' .. format('%.0f', after), 'PX', ms - ms % 1)
    end
    if v then return s .. ' ' .. us .. ' ' .. v end
    return s .. ' ' .. us
  end
end

