-- Decides several asks (requests for units of one key each): charges all of them, or none.
--
-- KEYS: the keys; if some charges have receipts, then for each key the set of its receipts.
--
-- ARGV: one argument for start.lua; the mode; and then several arguments for each key. The mode is the sum of
-- those of these numbers that apply:
--
--   1    the charges may have to be given back
--   2    some charges have receipts
--   4    another slot has denied the request
--   8    nothing must change
--   16   a key warms up
--   32   a dry run: the script writes nothing, and answers as if it had made the charges
--   128  only a charge may change the rate of a key: it is not known yet whether the request was granted before
--
-- The arguments for each key are: kind; n (0 charges nothing); 1 for a shadow rule; requests or gain; per or
-- unit (see calendar.lua for a Window); burst (see warmup.lua for a key that warms up). If the mode contains 2,
-- two more follow: the number of the receipt, or 0; and its term, in microseconds.
--
-- The fast path returns the seconds and microseconds of now and, for each key, the state as it was
-- stored, or '' if there was none. The general code returns for each key: 1 if it is granted, the
-- units left, and the microseconds of RetryAfter, ResetAfter and Delay, where -1 stands for a time
-- that is too long for an answer. If the charges may have to be given back, five more follow: the
-- units left and the ResetAfter without the charge, and if there was a charge, its instant and the
-- stored state before and after it; otherwise three times ''. If the rate of the key was kept because the
-- mode contains 128, a + follows the instant. If the mode contains 128, and the charge changes the length of
-- the window of a log, the state before the charge is a *, and then all elements of the list, one a line.

local now, returnable, revocable, looks = s * 1e6 + us, ARGV[2] % 2 == 1, ARGV[2] % 4 >= 2, ARGV[2] % 64 >= 32
local tentative = ARGV[2] % 256 >= 128
local width = revocable and 8 or 6
for i = revocable and #KEYS / 2 + 1 or #KEYS + 1, #KEYS do KEYS[i] = nil end

-- read returns the ask of the i-th key, decided as if it were the only one.
local function read(i, key)
  local v = width * (i - 1) + 2
  local a = {kind = kinds[ARGV[v + 1]], n = tonumber(ARGV[v + 2]), shadow = ARGV[v + 3] == '1'}
  a.config = {tonumber(ARGV[v + 4]), tonumber(ARGV[v + 5]), tonumber(ARGV[v + 6])}
  if not a.config[2] then framed(a.config, ARGV[v + 5]) end
  if not a.config[3] then warmed(a.config, ARGV[v + 6]) end
  if revocable and ARGV[v + 7] ~= '0' then
    a.receipt = {id = ARGV[v + 7], ends = now + ARGV[v + 8]}
  end
  if tentative and not a.kind.encode then a.stored = call('GET', key) end -- the text of a log is longer, and rarely needed
  local s = a.kind.load(key)
  a.known = s ~= nil
  if a.known then
    a.changed = renew(a.kind, s, a.config, now, heals)
    if tentative and a.changed and a.kind == kinds.s then a.stored = '*' .. table.concat(call('LRANGE', key, 0, -1), '\n') end
  else
    s = a.kind.fresh(a.config, now, key)
  end
  a.state, a.now = s, max(now, s.last)
  if a.config.edges then need_edges(i, s, a.config, a.now) end
  a.kind.look(a, s, a.now, max(a.n, 1))
  return a
end

-- encoded returns the text that is stored for the state of the ask a. A log is stored as a list:
-- for it, encoded returns a text that is different after each grant.
local function encoded(a) return (a.kind.encode or a.state.encode)(a.state) end

-- All states are read before any is written, so that an error leaves all of them unchanged.
local asks, passes = {}, ARGV[2] % 8 < 4
local calendars
for i, key in ipairs(KEYS) do
  local a = read(i, key)
  asks[i], passes = a, passes and (a.shadow or a.retry == 0) and not (barred and barred[i])
  calendars = calendars or a.config.edges
end
if calendars then refuse_edges(now) end

local reply, size = {}, 0
for _, a in ipairs(asks) do
  local left, reset, before, after, instant = a.left, a.reset, '', '', ''
  a.charged = passes and a.n > 0 and a.retry == 0
  local keeps = tentative and a.known and a.changed and a.n > 0 and not a.state.before
  if a.charged then
    if returnable and a.known then
      local s, had = a.state, a.state
      if a.stored and s.dropped then had = {key = s.key, marked = true} end -- the receipts of the stored state
      local e = had.marked and receipts().newest(had)
      before = a.stored or s.before and s.encode(s.before) or encoded(a)
      if e then before = before .. '|' .. receipts().flags(e) end
      if e and (had ~= s or s.rescaled and (a.stored or s.before)) then before = before .. '|' .. receipts().all(s) end
    end
    a.kind.charge(a, a.state, a.now, a.n)
    a.state.returnable = returnable
    if returnable then after, instant = encoded(a), format('%.0f', a.now) end
  end
  if keeps then instant = instant .. '+' end
  reply[size + 1], reply[size + 2] = a.retry == 0 and 1 or 0, a.left
  reply[size + 3], reply[size + 4], reply[size + 5] = later(a.retry, a.now - now), later(a.reset, a.now - now), a.delay
  size = size + 5
  if returnable then
    reply[size + 1], reply[size + 2] = left, later(reset, a.now - now)
    reply[size + 3], reply[size + 4], reply[size + 5] = instant, before, after
    size = size + 5
  end
end

for i, a in ipairs(asks) do
  local store = kept(a.state, a.charged)
  if store and not looks and (a.charged or a.changed and a.n > 0 and ARGV[2] % 16 < 8 and not tentative) then
    a.kind.save(KEYS[i], store, now, tonumber(pad))
  end
end
return reply
