
-- The fast path of one.lua for sliding window logs. It applies to a log that was written with this
-- length of the window and is not ahead of now, if at most three of its entries have left the
-- window and at least one has not. The costs must fit now, or as soon as the oldest remaining entry
-- leaves the window. The reply describes such a log by four numbers: the total before the oldest
-- remaining entry, the total with the newest entry, and the instants of these two entries.
local from = 4
do
  local key, prefix, limit = KEYS[1], ARGV[2], ARGV[3] + 0
  local per, now = prefix + 0, s * 1e6 + us
  local head, i, base, total = call('LRANGE', key, 0, 7), 2, '0', '0'
  local size, tail, clock, oldest = 9007199254740992 -- size: the units of the entry that leaves first
  if head[1] and sub(head[1], 1, #prefix) == prefix then
    clock, base = match(head[1], '^(-?%d+) (%d+)$', #prefix + 1)
    tail = call('LRANGE', key, -2, -1)
    local t, newest = tonumber(head[2]), tonumber(tail[1])
    total = tonumber(tail[2])
    if clock and t and newest and total and now >= newest and now >= clock + 0 then
      while t and now - t >= per do
        i = i + 2
        base, t = head[i - 1], tonumber(head[i])
      end
      oldest, total = t, tail[2]
      if t and t < now then size = (head[i + 1] or base + 1) - base end
    end
  end
  if oldest or not head[1] then
    local used, fast, all, ahead = total - base, true, not stopped, ARGV[5] and ARGV[4]
    local after = used
    for j = ahead and 6 or 4, #ARGV do
      local n = ARGV[j] + 0
      local want = n > 0 and n or 1
      local must = after + want - limit
      if must <= 0 then
        after = after + n
      else
        all = all and n == 0
        fast = fast and (must <= size or want > limit)
      end
    end
    if fast and (all or not barred) then -- the general code must count the denials
      if all and ahead then after = after + math.max(0, math.min(ahead, limit - after - ARGV[5])) end
      if after > used then
        local sum, ms = total + after - used, per / 1000 + pad
        if not oldest then
          call('RPUSH', key, prefix .. format('%.0f 0', now), now, sum)
        elseif tail[1] + 0 == now then
          call('LSET', key, -1, sum)
        else
          call('RPUSH', key, now, sum)
        end
        if i > 2 then
          call('LPOP', key, i - 2)
          call('LSET', key, 0, prefix .. clock .. ' ' .. base)
        end
        call('PEXPIRE', key, ms - ms % 1)
      end
      if oldest then return s .. ' ' .. us .. ' ' .. base .. ' ' .. total .. ' ' .. head[i] .. ' ' .. tail[1] end
      return s .. ' ' .. us
    end
  end
end

