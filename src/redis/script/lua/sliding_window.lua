-- SlidingWindowLog, SlidingWindowCounter: never more than `most` in `window`. The tail is a log: for each
-- part of a window with a grant the time of its last grant, the permits, and the lower 32 bits of the number
-- of its first charge; the oldest first. Times are microseconds after the log's base, which was `age` ago, so
-- that nothing is rewritten as time passes. `granted` is the sum of all permits, `newest` the time of the last
-- grant. A `part` of a nanosecond makes it exact.
--
-- A log may be long: no call copies it, and `write` puts it together once. An entry has a place, 16 to the
-- next: from `first` to `stop` in the bytes of `log`, from there to `behind` in `added`, three numbers each.
-- `looked` is the place up to which `ready` has looked, and `sum` the permits before it, so that the next call
-- goes on from there.
--@ params most window part
--@ short I4I6 0.001
--@ fields ddd age granted newest
--@ tail
--@ also numbers
local log, first, stop, behind = '', 1, 0, 1
local added, looked, sum = {}, 1, 0

local function begin()
  age, granted, newest = 0, 0, 0
end

local function read(bytes, at, last)
  log, first, stop, behind = bytes, at, last, last + 1
  looked, sum = at, 0
end

local function entry(at)
  if at <= stop then return struct.unpack('<dI4I4', log, at) end
  at = (at - stop - 1) / 16 * 3
  return added[at + 1], added[at + 2], added[at + 3]
end

-- The entries of `added`, as bytes behind `pieces`.
local function put_added(pieces)
  for at = math.max(first, stop + 1), behind - 1, 16 do
    pieces[#pieces + 1] = struct.pack('<dI4I4', entry(at))
  end
  return table.concat(pieces)
end

local function write(head)
  return head .. log:sub(first, stop) .. put_added({})
end

-- The start of the part in which `at` lies. An edge within the next half microsecond counts as reached: the
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

-- When enough permits have left the window; not before an earlier caller.
local function ready(n)
  if n > most then return math.huge end
  local over = granted + n - most
  if over <= 0 then return newest - age end
  local time, permits
  while looked > first do
    time, permits = entry(looked - 16)
    if sum - permits < over then break end
    looked, sum = looked - 16, sum - permits
  end
  while sum < over do
    time, permits = entry(looked)
    looked, sum = looked + 16, sum + permits
  end
  return math.max(newest - age, ended(time))
end

-- Forgets the entries that have ended by now, not those that will have at the grant: a caller that is booked
-- ahead may leave.
local function drop_ended()
  while first < behind do
    local oldest, permits = entry(first)
    if ended(oldest) > 0.001 then return end
    first, granted = first + 16, granted - permits
    if looked < first then looked = first else sum = sum - permits end
  end
end

local function charge(at, n)
  local time = math.max(age + at, newest)
  drop_ended()
  newest = time
  local place, total, number = behind, n, (sequence + 1) % 4294967296
  if first < behind then
    local last, permits, its_number = entry(behind - 16)
    if math.abs(part_of(last - age) - part_of(time - age)) < (part <= 1 and 0.001 or 0.5) then
      n = math.min(n, 4294967295 - permits)
      place, total, number = behind - 16, n + permits, its_number
      if looked == behind then sum = sum + n end
      if place < stop then stop = place - 1 end
    end
  end
  granted, behind = granted + n, place + 16
  local i = (place - stop - 1) / 16 * 3
  added[i + 1], added[i + 2], added[i + 3] = time, total, number
end

local function forget()
  if first == behind then return 0 end
  return ended((entry(behind - 16)))
end
--@ change

-- The permits that refunds have left in entries of `log`.
local left, entry_as_read = {}, entry

entry = function(at)
  local time, permits, number = entry_as_read(at)
  return time, at <= stop and left[at] or permits, number
end

write = function(head)
  local places, pieces, from = {}, {head}, first
  for at in pairs(left) do
    if at >= first and at <= stop then places[#places + 1] = at end
  end
  table.sort(places)
  for i, at in ipairs(places) do
    pieces[2 * i], pieces[2 * i + 1] = log:sub(from, at + 7), struct.pack('<I4', left[at])
    from = at + 12
  end
  pieces[#pieces + 1] = log:sub(from, stop)
  return put_added(pieces)
end

-- Exact. The entry is the last one whose first charge was not later. Only the lower bits of a sequence are
-- known: if the charge is older than the entry by half their range (microseconds), the sequence is that of
-- another charge.
local function refund(n, _, ago, _, charge_sequence)
  local low, high, since = 0, (behind - first) / 16, sequence - charge_sequence
  while low < high do
    local middle = math.floor((low + high) / 2)
    local _, _, number = entry(first + 16 * middle)
    if (sequence - number) % 4294967296 >= since then low = middle + 1 else high = middle end
  end
  if low == 0 then return end
  local at = first + 16 * (low - 1)
  local time, permits = entry(at)
  if ago + time - age > 2147483648 + part then return end
  n = math.min(n, permits)
  granted = granted - n
  if looked > at then sum = sum - n end
  -- What a change has added is one entry: all of it was charged now.
  if at <= stop then left[at] = permits - n else added[2] = permits - n end
  -- Where nothing is left of the last entry, the one before it is the newest.
  while first < behind do
    local time, permits = entry(behind - 16)
    newest = time
    if permits > 0 then return end
    behind = behind - 16
    stop = behind - 1
    looked = math.min(looked, behind)
  end
  newest = 0
end

local function halt() return 0 end

local function unhalt() end

-- What was granted in the last window counts on.
local function migrate() end

local function available()
  drop_ended()
  return math.max(most - granted, 0)
end

local function limit()
  return most
end
