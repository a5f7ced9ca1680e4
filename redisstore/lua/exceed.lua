
-- Charges further units for requests that used more than was charged for them before. It ignores
-- the limit.
--
-- ARGV: those of settle.lua, and then for each key: how many further units to charge, or 0; then
-- the numbers of its rate: requests or gain, per or unit (see calendar.lua for a Window), burst (see
-- warmup.lua for a key that warms up).

local most_used = 1125899906842624

-- beyond returns used + n, but at most the number in the argument most. If used is larger than this
-- number already, beyond returns used.
local function beyond(used, n, most) return used + max(min(n, most - used), 0) end

-- follow records in the receipts of s that n units without a receipt of their own are charged.
local function follow(s, now, n)
  if s.marked then receipts().charge({}, s, now, n) end
end

-- raised returns the sum of two levels, with at most most_used whole tokens, as beyond returns it.
local function raised(s, level, cost)
  local whole, frac, fine = beyond(level[1], cost[1], most_used), level[2] + cost[2], level[3] + cost[3]
  if fine >= grain(s.gain) then frac, fine = frac + 1, fine - grain(s.gain) end
  if frac >= s.unit then whole, frac = beyond(whole, 1, most_used), frac - s.unit end
  return {whole, frac, fine}
end

-- exceed charges n tokens to a bucket, whatever its limit. If the key warms up, cost is what the n
-- units cost.
function bucket.exceed(s, now, n, _, cost)
  cost = cost or {n, 0, 0}
  local elapsed = now - s.last
  local debt, queue = drained(s, s.debt, elapsed), s.queue and drained(s, s.queue, elapsed)
  if s.marked then lower(s, debt) end
  follow(s, now, n)
  s.last, s.debt = now, raised(s, debt, cost)
  if queue then s.queue = raised(s, queue, cost) end
end

function fixed.exceed(s, now, n, c)
  follow(s, now, n)
  if not s.per and s.window ~= c.window and not (s.begin and now < s.ends) then
    fixed.adopt(s, c, now) -- c has no edges of the calendar of s, whose window has ended
  end
  local used, begin, ends = fixed.used(s, c, now)
  keep_count(s, now, beyond(used, n, max(c[1], most_used)), begin, ends)
end

function counter.exceed(s, now, n, c)
  follow(s, now, n)
  local prev, cur = counter.counts(s, now)
  s.last, s.prev, s.cur = now, prev, beyond(cur, n, max(c[1], most_used))
end

-- exceed adds n units to a log as a new entry. If the log has too many entries, it adds them to the
-- newest one and sets the time of this entry to now. If the log has too many units, it replaces all
-- entries by one at now.
function log.exceed(s, now, n)
  follow(s, now, n)
  local gone, units = used(s, now)
  forget(s, gone)
  s.clock, s.last = now, now
  if units + n > 4294967295 or s.total + n > 4503599627370496 then
    s.drop, s.len, s.new = s.stored, 1, true
    s.oldest, s.newest, s.base, s.total, s.given, s.records = now, now, 0, min(units + n, 4294967295), nil, ''
    return
  end
  s.total = s.total + n
  if s.len > 65536 then
    s.newest, s.merged = now, true
    call('LSET', s.key, -2, format('%.0f', now))
  elseif s.len > 0 and s.newest == now then
    s.merged = true
  else
    s.appended, s.len, s.newest = true, s.len + 1, now
  end
end

-- unused reports whether the key with the state s counts as new at the instant now.
local function unused(kind, s, now, config)
  if s.gain then return is_new(s, now, config.over) end
  local a = {config = config}
  kind.look(a, s, now, 1)
  return a.reset == 0 and not a.first
end

for i = 1, #KEYS / 2 do
  local key, kind, v = KEYS[i], kinds[ARGV[7 * i - 5]], 7 * #KEYS / 2 + 4 * i - 2
  local n = ARGV[v] + 0
  if n > 0 then
    local config = {tonumber(ARGV[v + 1]), tonumber(ARGV[v + 2]), tonumber(ARGV[v + 3])}
    if not config[2] then framed(config, ARGV[v + 2]) end
    if not config[3] then warmed(config, ARGV[v + 3]) end
    local s, at, begin, ends = kind.load(key), now, nil, nil
    if s and heals then kind.heal(s, now) end
    if s and unused(kind, s, max(now, s.last), config) then
      call('DEL', key)
      if s.window == config.window and not s.per then begin, ends = s.begin, s.ends end -- the edges in config may be others
      s, at = nil, max(now, s.last) -- if the clock has stepped back, the time of the key stands still
    end
    if s and config.over and s.gain and not kind.known(s, config, max(now, s.last)) then
      kind.adopt(s, config, max(now, s.last)) -- the key has to warm up again, at this rate
      s.before, s.slow = nil, nil
    end
    if not s then
      s = kind.fresh(config, at, key)
      s.begin, s.ends = begin, ends
    end
    kind.exceed(s, max(now, s.last), n, config)
    kind.save(key, s, now, tonumber(pad))
  end
end
