
-- Decides either for several callers of one key, as if they had asked one after the other at one
-- instant, or for one caller of each of several keys. These keys have the same rate, and each is
-- decided by itself.
--
-- ARGV: one argument for start.lua; the beginning of every state of this rate; further numbers of
-- the rate; then for each key the cost: how many units its caller wants. If one key has several
-- callers, or if units are to be taken for later requests (ahead), there are instead: how many
-- units to take ahead, how many must then be left, and the costs of all callers. A cost of 0
-- charges nothing. Units are taken ahead only if all callers are granted.
--
-- For one key, the fast path returns a string: the seconds and microseconds of now, and the state
-- before the charge, if there was one. If it has granted units to a single caller, takes none ahead
-- and the state is no log, it returns the new state instead, a string that it has made anyway. From
-- this reply, the client computes the result of each caller. The general code returns a list: how
-- many units were taken ahead; the instant of the charge; how long the state stays as it is because
-- it is ahead of now, or -1 if the answers are based on a state that was not stored; and for each
-- caller what take.lua returns for a key, or penalty.lua if the script counts denials.
--
-- For several keys, which cannot be logs, it returns now, and for each key the state as it was
-- stored, or '' if there was none, or nil if the fast path did not apply or the state could not be
-- stored. nil means that the key was not decided.

local now = s * 1e6 + us
local config = {tonumber(ARGV[3]), tonumber(ARGV[2])}
if from == 6 then config = {tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])} end
local ahead, reserve = 0, 0
if ARGV[from + 1] then ahead, reserve, from = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), from + 2 end

local key, state, changed = KEYS[1], nil, false
state = kind.load(key)
if state then
  changed = renew(kind, state, config, now, heals)
else
  state = kind.fresh(config, now, key)
end

local a, at, charged, wanted, all = {config = config}, max(now, state.last), false, false, true
local reply, size = {0, at, 0}, 3
for i = from, #ARGV do
  local n = tonumber(ARGV[i])
  kind.look(a, state, at, max(n, 1))
  local rest = barred and judge(n, a.retry == 0) or 0
  local granted = a.retry == 0 and rest == 0
  if n > 0 then
    wanted, all, charged = true, all and granted, charged or granted
    if granted then kind.charge(a, state, at, n) end
  end
  reply[size + 1], reply[size + 2] = granted and 1 or 0, a.left
  reply[size + 3], reply[size + 4], reply[size + 5] = later(a.retry, at - now), later(a.reset, at - now), a.delay
  if rest > 0 then deny(reply, size, rest) end
  size = size + 5
end
if all and ahead > 0 then
  kind.look(a, state, at, 1)
  local n = min(ahead, a.left - reserve)
  if n > 0 then
    kind.charge(a, state, at, n)
    charged, reply[1] = true, n
  end
end
local store = kept(state, charged)
if store and (charged or changed and wanted) then
  kind.save(key, store, now, tonumber(pad))
  changed = store ~= state
end
reply[3] = changed and -1 or at - now
return reply
