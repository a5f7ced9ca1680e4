
-- Wraps take.lua for a request that must be charged once. If the script grants the request, it also
-- writes the answers to a record. If the record exists already, the script returns its answers
-- instead, and charges nothing.
--
-- KEYS: as for take.lua, with the sets of receipts; then the record. ARGV: as for take.lua; then for how
-- many microseconds a record is valid; and the text of the record. The text has for each key of the
-- request, in a fixed order, its limit and the five numbers of its answer. For a key that this script
-- decides, a ? stands in place of the five numbers.
--
-- A record is stored as these numbers, separated by spaces, after three others: the instant of the
-- grant, for how many microseconds the record is valid, and how often it was used as an answer. If
-- the record is used, the script returns one text: the microseconds since the grant, and then the
-- numbers. Otherwise it returns what take.lua returns.

local record, ttl, kept = KEYS[#KEYS], ARGV[#ARGV - 1], ARGV[#ARGV]
KEYS[#KEYS], ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil, nil
local now, most = s * 1e6 + us, 100

local text = call('GET', record)
if text then
  local at, lasts, replays, answers = match(text, '^(-?%d+) (%d+) (%d+) (.+)$')
  if not at then error('CORRUPT state in ' .. record, 0) end
  local since = now - at
  if since < 0 then since = 0 end
  if since < lasts + 0 and replays + 0 < most then
    if ARGV[2] % 16 < 8 then
      call('SET', record, format('%s %s %d %s', at, lasts, replays + 1, answers), 'KEEPTTL')
    end
    return format('%.0f ', since) .. answers
  end
end

local function decide()
