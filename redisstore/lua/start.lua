-- The beginning of every script that charges: it reads the time. After it comes a fast
-- path, straight-line code that decides the usual states; it creates no function, and only
-- the tables that it cannot do without. If the fast path does not apply, the general code
-- after it decides.
--
-- ARGV[1]: '', or in tests: the seconds and microseconds of now, the pad of expiry, and 1
-- if states far ahead of now are moved to now.

local call, pcall, format, sub, match = redis.call, redis.pcall, string.format, string.sub, string.match
local s, us, pad, heals
if ARGV[1] == '' then
  local t = call('TIME')
  s, us, pad, heals = t[1], t[2], 1000, true
else
  s, us, pad, heals = match(ARGV[1], '^(-?%d+) (%d+) (%d+) (%d)$')
  heals = heals == '1'
end
