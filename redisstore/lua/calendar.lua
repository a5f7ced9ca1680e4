
-- Asks with a Window: fixed windows that begin with the first use, or that are those of a calendar.
--
-- In place of per, such an ask has a text: first: and per, or the name of the calendar as it is stored, see
-- window.lua, and the edges of its windows in seconds: the begin of the window that contains now by the clock
-- of the caller, the end of this window, and the end of the next one. Each window begins where the one before
-- ends.
--
-- If the clock of the caller is wrong, or the call took very long, the server's time may be outside of the two
-- windows. Then the script fails with an error, before it has written anything, and the caller calls it once
-- more. The error is a text: EDGES, the time of the server in microseconds, and for each ask that lacks its
-- window the number of the ask and the microsecond that the edges must surround, and a semicolon. Usually this
-- is the time of the server. It is later for a state that is ahead of it, because the server's clock was set
-- back.

-- framed reads the text of an ask into its config c.
local function framed(c, text)
  local edges
  c.window, edges = match(text, '^(%S+) ?(.*)$')
  c[2] = numbers(match(text, '^first:(%d+)$'))
  if c[2] then return end
  c.edges = {}
  for edge in edges:gmatch('-?%d+') do c.edges[#c.edges + 1] = edge * 1e6 end
end

-- wanted has the second part of the error, or is empty if no ask lacks its window.
local wanted = ''

-- need_edges notes if the ask i, which has the config c and the state s, lacks the window that contains now.
local function need_edges(i, s, c, now)
  local begin, ends = fixed.span(s, c, now)
  if begin == ends then wanted = format('%s %d %.0f', wanted, i, now) end
end

-- refuse_edges ends the script with the error if an ask lacks its window.
local function refuse_edges(now)
  if wanted ~= '' then error(format('EDGES %.0f%s;', now, wanted), 0) end
end
