-- The beginning of every script that charges: it reads the time. In most scripts a fast path comes
-- next: short code that decides the usual states. To be fast, it creates no function, and only the
-- tables that it cannot do without. If the fast path does not apply, the general code after it
-- decides.
--
-- ARGV[1]: '', or in tests: the seconds and microseconds of now, the pad of the function expiry
-- (how many milliseconds a key lives longer than needed), and 1 if states that are far ahead of now
-- are moved to now, or 0.

local call, pcall, format, sub, match = redis.call, redis.pcall, string.format, string.sub, string.match
local s, us, pad, heals

-- These two are set only in scripts that count denials, see strike.lua. barred is a table. In a script for several asks, it
-- has for the number of each ask that a block denies how long this block still lasts. In a script for one key, it is empty,
-- and stopped says whether a block denies the key from the start.
local barred, stopped
if ARGV[1] == '' then
  local t = call('TIME')
  s, us, pad, heals = t[1], t[2], 1000, true
else
  s, us, pad, heals = match(ARGV[1], '^(-?%d+) (%d+) (%d+) (%d)$')
  heals = heals == '1'
end
