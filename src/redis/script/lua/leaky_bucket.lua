-- LeakyBucket: `level` is the content, as permits; below zero it has been empty for a time. A queue serves when
-- the content before has leaked, a meter serves what fits.
--@ params rate capacity meter
--@ short dI4B
--@ fields d level
--@ lows
--@ also room
local function begin()
  level = 0
end

local function resume(elapsed)
  level = level - elapsed * rate / 1000000
end

local function ready(n)
  if n > capacity then return math.huge end
  return (meter == 0 and level or level + n - capacity) * 1000000 / rate
end

-- For the microsecond, see SmoothBursty.
local function charge(at, n)
  local missing = level - at * rate / 1000000
  $note(missing)
  if missing < -rate / 1000000 then level = level - missing end
  level = level + n
end

local function forget()
  return level * 1000000 / rate
end

-- Nothing leaks in a pause, but what a pause holds back is no content.
local function room(n)
  if meter ~= 0 then return 0 end
  local held = math.max(pause, 0)
  local over = (math.max(level - held * rate / 1000000, 0) + n - capacity) * 1000000 / rate
  return over > 0.001 and held + over or 0
end
--@ change

-- A queue is empty when it grants, so nothing comes back behind a grant: later callers wait behind the charge. Time
-- that comes back to an empty bucket is lost; for the microsecond, see SmoothBursty.
local function refund(n, all, _, _, charge_sequence)
  local before = level
  level = level - take_back(n, all, charge_sequence)
  if level < -rate / 1000000 then level = math.min(before, 0) end
end

-- For these two see TokenBucket.
local function halt(duration, begins)
  local least = meter == 0 and 0 or capacity
  local owes, floor = (level - least) * 1000000 / rate, duration * rate / 1000000 + least
  level = math.max(level, floor)
  if begins then note(level - floor) end
  return owes
end

local function unhalt(early)
  level = level - early * rate / 1000000
  forget_lows()
end

-- What is queued keeps its time; a meter keeps its content. In a pause that is the content at its end, when a
-- meter is full.
local function migrate(old_rate, _, old_meter)
  if meter == 0 and old_meter == 0 then
    level = level * rate / old_rate
  elseif pause > 0 then
    level = level + pause * (rate - old_rate) / 1000000
    halt(pause)
  end
end

local function available()
  return meter == 0 and 0 or whole(capacity - math.max(level, 0))
end

local function limit()
  return meter == 0 and 0 or capacity
end
