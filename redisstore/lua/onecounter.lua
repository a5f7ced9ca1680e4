
-- The fast path of one.lua for sliding window counters. It applies to states that were written with
-- this length of the window and are not ahead of now, if the count of the previous window times the
-- length is less than 2^53.
local from, many = 4, KEYS[2] and {s .. ' ' .. us}
do
  local prefix, limit, size = ARGV[2], ARGV[3] + 0, #ARGV[2]
  local per, now = prefix + 0, s * 1e6 + us
  local offset = now % per
  local save = many and pcall or call
  for k = 1, #KEYS do
    local key, v, prev, cur = KEYS[k], pcall('GET', KEYS[k]), '0', 0
    if v then
      prev = nil
      if type(v) == 'string' and sub(v, 1, size) == prefix then
        local s0, us0, before, count = match(v, '^(%d+) (%d+) (%d+) (%d+)$', size + 1)
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
      local failed, value
      local after, all, ahead, first, last = used, not stopped, ARGV[5] and ARGV[4], 4, #ARGV
      if many then ahead, first, last = nil, 3 + k, 3 + k elseif ahead then first = 6 end
      for i = first, last do
        local more = after + ARGV[i]
        if more <= limit then after = more elseif ARGV[i] ~= '0' then all = false end
      end
      if barred and not all then after = used end -- the general code must count the denials
      if all and ahead then after = after + math.max(0, math.min(ahead, limit - after - ARGV[5])) end
      if after > used then
        local ms = (2 * per - offset) / 1000 + pad
        value = prefix .. s .. ' ' .. us .. ' ' .. prev .. ' ' .. format('%.0f', cur + after - used)
        failed = save('SET', key, value, 'PX', ms - ms % 1).err
      end
      if many then
        many[k + 1] = not failed and (v or '') -- a key that cannot be stored does not affect the others
      elseif all or not barred then
        return not ahead and value or s .. ' ' .. us .. (v and ' ' .. v or '')
      end
    elseif many then
      many[k + 1] = false
    end
  end
  if many then return many end
end

