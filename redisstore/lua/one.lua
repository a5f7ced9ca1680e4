
-- Decides for callers of one key, as if they had asked one after the other at one
-- instant; or for a caller each of several keys of one rate, each by itself.
--
-- ARGV: see start.lua; what a state of this rate begins with; further numbers of the
-- rate; the cost of the caller, or of that of each key. If there is more to say of one
-- key, then instead of one cost: how many units to take ahead, how many to leave, the
-- costs of all callers. A cost of 0 looks. Units are taken ahead if all callers are
-- granted.
--
-- Returns a string if the straight way was taken: the seconds and microseconds of now,
-- and the state as it was stored, if there was one. What each caller is told follows
-- from that. Else a list: how many units were taken ahead; the instant of the charge;
-- for how long time stands still for the state, as that is ahead of now, or -1 if what
-- the answers are by was not stored; and for each caller what take.lua returns for a
-- key.
--
-- Of several keys, not of logs, it returns now and then for each key the state as it
-- was stored, or '', or nothing: then that key is not decided about, as the straight
-- way can not be taken.

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
  local granted = a.retry == 0
  if n > 0 then
    wanted, all, charged = true, all and granted, charged or granted
    if granted then kind.charge(a, state, at, n) end
  end
  reply[size + 1], reply[size + 2] = granted and 1 or 0, a.left
  reply[size + 3], reply[size + 4], reply[size + 5] = a.retry, a.reset, a.delay
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
if charged or changed and wanted then
  kind.save(key, state, now, tonumber(pad))
  changed = false
end
reply[3] = changed and -1 or at - now
return reply
