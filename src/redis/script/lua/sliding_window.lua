-- SlidingWindowLog, SlidingWindowCounter: never more than `most` in `window`. The tail is a log: for each
-- part of a window in which something was granted the time of the last of it, how much, and the number
-- of the first charge; the oldest first. Times are microseconds after the log's base, which was `age`
-- ago, so that nothing has to be rewritten as time goes by. `granted` is the sum of all, `newest` the
-- time of the last. A `part` of a nanosecond makes it exact.
--@ params most window part
--@ fields ddd age granted newest
--@ tail
local log, first = '', 1

local function begin()
  age, granted, newest = 0, 0, 0
end

local function read(bytes, at, last)
  log, first = bytes:sub(at, last), 1
end

local function write()
  return log:sub(first)
end

-- Where the part begins in which `at` lies. An edge that comes within half a microsecond has come: the
-- server's time is a number of 51 bits.
local function part_of(at)
  if part <= 1 then return at end
  local into = math.fmod(now + at, part)
  return into > part - 0.5 and at - into + part or at - into
end

local function ended(time)
  return part_of(time - age) + window
end

local function resume(elapsed)
  age = age + elapsed
end

-- When enough has gone; not before who came earlier.
local function ready(n)
  if n > most then return math.huge end
  local over, after, at = granted + n - most, newest - age, first
  local time, permits, _
  while over > 0 do
    time, permits, _, at = struct.unpack('<dI4I4', log, at)
    over = over - permits
    if over <= 0 then after = math.max(after, ended(time)) end
  end
  return after
end

-- What has ended by now is forgotten, and not what will have by then: who was booked ahead may leave.
local function charge(at, n)
  local time = math.max(age + at, newest)
  while first <= #log do
    local oldest, permits = struct.unpack('<dI4', log, first)
    if ended(oldest) > 0.001 then break end
    first, granted = first + 16, granted - permits
  end
  newest = time
  local number = (sequence + 1) % 4294967296
  if first <= #log then
    local last, permits, its_number = struct.unpack('<dI4I4', log, #log - 15)
    if math.abs(part_of(last - age) - part_of(time - age)) < (part <= 1 and 0.001 or 0.5) then
      n = math.min(n, 4294967295 - permits)
      granted = granted - permits
      log, n, number = log:sub(1, -17), n + permits, its_number
    end
  end
  granted = granted + n
  log = log .. struct.pack('<dI4I4', time, n, number)
end

local function forget()
  for at = #log - 15, first, -16 do
    local time, permits = struct.unpack('<dI4', log, at)
    if permits > 0 then return ended(time) end
  end
  return 0
end
--@ change

-- Exact: as if it had never been granted.
local function refund(n, _, _, _, charge_sequence)
  for at = #log - 15, first, -16 do
    local time, permits, number = struct.unpack('<dI4I4', log, at)
    if (charge_sequence - number) % 4294967296 < 2147483648 then
      n = math.min(n, permits)
      granted = granted - n
      local entry = struct.pack('<dI4I4', time, permits - n, number)
      if n == permits and at + 16 > #log then
        entry = ''
        newest = at > first and struct.unpack('<d', log, at - 16) or 0
      end
      log = log:sub(1, at - 1) .. entry .. log:sub(at + 16)
      return
    end
  end
end

local function halt() end

-- What was granted in the last window counts.
local function migrate() end

local function available()
  local count = granted
  for at = first, #log, 16 do
    local time, permits = struct.unpack('<dI4', log, at)
    if ended(time) > 0.001 then break end
    count = count - permits
  end
  return math.max(most - count, 0)
end

local function limit()
  return most
end
