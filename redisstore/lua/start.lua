-- What is usual is decided by straight-line code, which makes no function and only the
-- tables that it must; the general code below it decides the rest, and is not come to
-- otherwise.
--
-- ARGV[1]: '', or for tests the seconds and microseconds of now, the pad of expiry and
-- whether times far ahead are read as now.

local call, pcall, format, sub, match = redis.call, redis.pcall, string.format, string.sub, string.match
local s, us, pad, heals
if ARGV[1] == '' then
  local t = call('TIME')
  s, us, pad, heals = t[1], t[2], 1000, true
else
  s, us, pad, heals = match(ARGV[1], '^(-?%d+) (%d+) (%d+) (%d)$')
  heals = heals == '1'
end
