
-- Asks with a Window: fixed windows that begin with the first use, or that are those of a calendar.
--
-- In place of per, such an ask has a text. For windows that begin with the first use, the text is "first:" and
-- per. For the windows of a calendar, it is the name of the calendar as it is stored (see window.lua), and then
-- three edges in seconds: the begin of the window that contains now by the clock of the caller, the end of this
-- window, and the end of the next one. Each window begins where the one before ends.
--
-- If the clock of the caller is wrong, or the call took very long, the server's time may be outside of the two
-- windows. Then the script fails with an error, before it has written anything, and the caller calls it once
-- more. The error is a text: the word EDGES, the time of the server in microseconds, two numbers for each ask
-- that lacks its window, and a semicolon. The two numbers are the number of the ask, and the instant that its
-- windows must contain, in microseconds. This instant is usually the time of the server. It is later if the
-- state of the ask is ahead of that time, because the server's clock was set back.

-- framed reads the text of an ask into its config c.
local function framed(c, text)
  local edges
  c.window, edges = match(text, '^(%S+) ?(.*)$')
  c[2] = numbers(match(text, '^first:(%d+)$'))
  if c[2] then return end
  c.edges = {}
  for edge in edges:gmatch('-?%d+') do c.edges[#c.edges + 1] = edge * 1e6 end
end

-- wanted has the part of the error with two numbers for each ask that lacks its window. It is empty if no
-- ask lacks its window.
local wanted = ''

-- need_edges adds two numbers to wanted if the ask with the number i lacks the window that contains now. The
-- function fixed.span then returns a window of no length. c is the config of the ask, and s is its state.
local function need_edges(i, s, c, now)
  local begin, ends = fixed.span(s, c, now)
  if begin == ends then wanted = format('%s %d %.0f', wanted, i, now) end
end

-- refuse_edges ends the script with the error if an ask lacks its window.
local function refuse_edges(now)
  if wanted ~= '' then error(format('EDGES %.0f%s;', now, wanted), 0) end
end
