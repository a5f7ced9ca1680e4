
-- The fast path of take.lua. It applies if every state was written at the rate that is asked for
-- and is not ahead of now, if all products are less than 2^53 and so exact, and if the charges need
-- not be given back.
if ARGV[2] == '0' then
  local now, fast, passes = s * 1e6 + us, true, true
  local reply, values, expires = {s .. ' ' .. us}, {}, {}
  for i = 1, #KEYS do
    local j = 6 * i - 4
    local kind, n, x, y, prefix = ARGV[j + 1], ARGV[j + 2] + 0, ARGV[j + 4], ARGV[j + 5]
    local bucket, per, ago, used, cur = kind == 't' or kind == 'l', y + 0, 0, 0
    if bucket then prefix = x .. ' ' .. y .. ' ' .. ARGV[j + 6] .. ' ' else prefix = y .. ' ' end
    local v = call('GET', KEYS[i])
    if v then
      local s0, us0
      if sub(v, 1, #prefix) == prefix then s0, us0, used, cur = match(v, '^(%d+) (%d+) (%d+) ?(%d*)$', #prefix + 1) end
      fast = s0 and (kind == 'c') == (cur ~= '')
      if not fast then break end
      ago, used, cur = now - (s0 * 1e6 + us0), used + 0, kind == 'c' and cur + 0
    end
    local value, fits, ms, middle = used, true, 0, ' '
    local want = n > 0 and n or 1
    if bucket then
      local full = y * ARGV[j + 6]
      fast = used <= full and full + 2 * y < 9007199254740992
      value = used - ago * x
      if value < 0 then value = 0 end
      value = value + want * y
      fits, ms = value <= full, value / x / 1000
    else
      local offset = now % per
      ms = (per - offset) / 1000
      if kind == 'c' then
        local prev, count = used, cur or 0
        if ago > offset then prev, count = ago - offset <= per and count or 0, 0 end
        local weight = prev * (per - offset)
        local rest = weight % per
        fast = weight < 9007199254740992
        value, ms, middle = count + want, ms + per / 1000, format(' %.0f ', prev)
        fits = value + (weight - rest) / per + (rest > 0 and 1 or 0) <= x + 0
      else
        value = (ago > offset and 0 or used) + want
        fits = value <= x + 0
      end
    end
    fast = fast and ago >= 0 and used < 9007199254740992 and (cur or 0) < 9007199254740992
    if not fast then break end
    if n > 0 and fits then
      ms = ms + pad
      values[i], expires[i] = prefix .. s .. ' ' .. us .. middle .. format('%.0f', value), ms - ms % 1
    end
    reply[i + 1], passes = v or '', passes and (fits or ARGV[j + 3] == '1')
  end
  if fast and (passes or not barred) then -- a denial may be a strike, which only penalty.lua can count
    for i = 1, passes and #KEYS or 0 do
      if values[i] then call('SET', KEYS[i], values[i], 'PX', expires[i]) end
    end
    return reply
  end
end

