
-- Checks that each ask which charges further units has the edges of the window that it charges; see
-- calendar.lua. This comes before settle.lua and exceed.lua write anything. ARGV: those of exceed.lua.

do
  local now = s * 1e6 + us
  for i = 1, #KEYS / 2 do
    local kind, v = kinds[ARGV[7 * i - 5]], 7 * #KEYS / 2 + 4 * i - 2
    if ARGV[v] ~= '0' and not tonumber(ARGV[v + 2]) then
      local config, state = {}, kind.load(KEYS[i])
      framed(config, ARGV[v + 2])
      if state and heals then kind.heal(state, now) end
      state = state or kind.fresh(config, now, KEYS[i])
      fixed.adopt(state, config, now) -- a copy, which is not stored
      if config.edges then need_edges(i, state, config, max(now, state.last)) end
    end
  end
  refuse_edges(now)
end

