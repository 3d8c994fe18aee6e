-- FixedWindow: `granted` in the window that begins at `start` (microseconds from now); `began` is the number of
-- its first charge. `grid` is how far into a window the epoch was, -1 for windows that begin with their first
-- charge.
--@ params most window grid
--@ short I4I5i5
--@ fields dI5I7 start granted began
--@ also numbers
local function begin()
  -- Long ago: otherwise a longer window that is set later would have begun already.
  start, granted, began = -4503599627370496, 0, 0
end

-- The start of the window of the grid in which `at` lies. An edge within the next half microsecond counts as
-- reached: the server's time is a number of 51 bits.
local function edge(at)
  local into = grid < 0 and 0 or math.fmod(now + at + grid, window)
  return into > window - 0.5 and at or at - into
end

-- If the clock has gone back, the count is that of the window in which it is now.
local function resume(elapsed)
  start = start - elapsed
  if now < last and start + window > 0 then
    start = $edge(math.max(start, 0))
  end
end

local function ready(n)
  return n > most and math.huge or granted + n <= most and start or start + window
end

-- A number from before the window is used again if all later charges were refunded.
local function charge(at, n)
  local number = sequence + 1
  if at > start + window - 0.001 then
    start = $edge(at)
    granted, began = 0, number
  elseif number < began then
    began = number
  end
  granted = granted + n
end

local function forget()
  return math.max(start + window, 0)
end
--@ change

-- Exact within the window, which keeps its start; after it there is nothing to return. Only the lower bits of a
-- sequence are known: if the charge is older than the window by half their range (microseconds), the sequence
-- is that of another charge.
local function refund(n, _, ago, _, charge_sequence)
  if charge_sequence >= began and ago + start < 2147483648 then granted = math.max(granted - n, 0) end
end

local function halt() return 0 end

local function unhalt() end

-- What is settled is not bounded by the limit, and the key has 40 bits for it.
local charge_all = charge
charge = function(at, n)
  charge_all(at, n)
  granted = math.min(granted, 1099511627775)
end

-- What was granted counts until the end of a new window with the old start.
local function migrate() end

local function available()
  return math.max(most - (start + window > 0 and granted or 0), 0)
end

local function limit()
  return most
end
