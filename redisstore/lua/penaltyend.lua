end

local reply, now = judge(), s * 1e6 + us
local width = #reply / #KEYS
for _, p in ipairs(width >= 5 and penalties or {}) do -- the fast path has denied no ask
  local i = width * (p.place - 1)
  local rest = barred[p.place] or 0
  if rest > 0 then
    if p.moved and p.strikes then keep(p, now) end
  elseif p.strikes and reply[i + 1] == 0 then
    rest = strike(p, now)
  end
  if rest > 0 then
    deny(reply, i, rest)
    if width == 10 then reply[i + 6], reply[i + 7] = 0, longer(rest, reply[i + 7]) end
  end
end
return reply
