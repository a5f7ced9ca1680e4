
-- The fast path of one.lua for buckets. It applies to states that were written at this rate and are
-- not ahead of now, in the short form or in the form of two rates, see bucket.lua. All products are
-- less than 2^53, or so large that rounding does not matter.
local from, many = 6, KEYS[2] and {s .. ' ' .. us}
do
  local prefix, gain, unit, size = ARGV[2], ARGV[3] + 0, ARGV[4] + 0, #ARGV[2]
  local full, sec, mic, head = ARGV[5] * unit, s + 0, us + 0, prefix .. s .. ' ' .. us .. ' '
  local plain = full + 2 * unit < 9007199254740992
  local save = many and pcall or call
  for k = 1, #KEYS do
    local key, v, debt, slow, per, queue = KEYS[k], pcall('GET', KEYS[k]), plain and 0
    if v then
      debt = nil
      if plain and type(v) == 'string' and sub(v, 1, size) == prefix then
        local s0, us0, parts = match(v, '^(%d+) (%d+) (%d+)$', size + 1)
        if not s0 then
          local frac
          s0, us0, parts, frac, slow, per = match(v, '^(%d+) (%d+) (%d+) (%d+) 0 (%d+) (%d+)$', size + 1)
          if not s0 then
            s0, us0, parts, frac, slow, per = match(v, '^(%d+) (%d+) (%d+) (%d+) 0 %3 %4 0 (%d+) (%d+)$', size + 1)
            queue = slow
          end
          if s0 then
            parts = parts * unit + frac
            v = prefix .. s0 .. ' ' .. us0 .. format(' %.0f', parts)
          end
        end
        if s0 then
          local elapsed = (sec - s0) * 1e6 + (mic - us0)
          parts = parts + 0
          if elapsed >= 0 and parts <= full then
            debt = parts - elapsed * gain
            if debt < 0 then debt = 0 end
            if slow then -- the slowest rate, until the key counts as new
              local owed, gone = parts * per, elapsed * slow * unit
              if owed >= 9007199254740992 or gone >= 9007199254740992 then
                debt = nil
              elseif owed <= gone then
                slow = nil
              end
            end
          end
        end
      end
    end
    if debt then
      local failed, value
      local after, all, ahead, first, last = debt, not stopped, ARGV[7] and ARGV[6], 6, #ARGV
      if many then ahead, first, last = nil, 5 + k, 5 + k elseif ahead then first = 8 end
      for i = first, last do
        local more = after + ARGV[i] * unit
        if more <= full then after = more else all = false end
      end
      if barred and not all then after = debt end -- the general code must count the denials
      if all and ahead then
        local room = full - after
        local n = math.min(ahead, (room - room % unit) / unit - ARGV[7])
        if n > 0 then after = after + n * unit end
      end
      if after > debt then
        local ms = after / gain / 1000 + pad
        value = head .. format(after < 2147483648 and '%d' or '%.0f', after)
        local stored = value
        if slow then
          local level = format('%.0f %.0f 0 ', (after - after % unit) / unit, after % unit)
          stored = head .. level .. (queue and level or '') .. slow .. ' ' .. per
          ms = math.min(after / unit * per / slow / 1000 + pad, 9e13) -- Lua writes larger numbers with an exponent
        end
        failed = save('SET', key, stored, 'PX', ms < 2147483648 and format('%d', ms) or ms - ms % 1).err
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

