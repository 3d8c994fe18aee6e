-- TokenBucket, Gcra: all permits of a request must be there. `level` is minus the tokens, as if they came
-- continuously; with a `period` (microseconds) they count from the next step on. Steps are counted from the
-- epoch.
--@ params rate capacity initial period
--@ short dI4 capacity 0
--@ fields d level
--@ lows
-- How long before `at` the last step was. A step within the next half microsecond counts as reached: the
-- server's time is a number of 51 bits.
local function since_step(at)
  local rest = period > 0 and math.fmod(now + at, period) or 0
  return rest > period - 0.5 and rest - period or rest
end

local function begin(idle)
  local since
  since = $since_step(0)
  level = -math.min(idle and capacity or initial, capacity) - since * rate / 1000000
end

local function resume(elapsed)
  level = level - elapsed * rate / 1000000
end

local function ready(n)
  local filled = (level + n) * 1000000 / rate
  local since
  since = $since_step(filled)
  return n > capacity and math.huge or since > 0.5 and filled - since + period or filled
end

-- For the microsecond, see SmoothBursty.
local function charge(at, n)
  local since
  since = $since_step(at)
  local missing = level + capacity - (at - since) * rate / 1000000
  $note(missing)
  if missing < -rate / 1000000 then level = level - missing end
  level = level + n
end

local function forget()
  local after
  after = $ready(capacity)
  return after
end
--@ change

-- What the store has no room for is cut off by the next charge.
local function refund(n, all, _, _, charge_sequence)
  level = level - take_back(n, all, charge_sequence)
end

local function halt(duration, begins)
  local owes, floor = level * 1000000 / rate, duration * rate / 1000000
  level = math.max(level, floor)
  if begins then note(level - floor) end
  return owes
end

-- What was found in the pause was found at its end.
local function unhalt(early)
  level = level - early * rate / 1000000
  forget_lows()
end

-- What was stored at the last step keeps its number, debt keeps its time. Where the steps change, the earlier one
-- of the last steps counts.
local function migrate(old_rate, old_capacity, _, old_period)
  local rest = old_period > 0 and math.fmod(now, old_period) or 0
  local since = math.max(since_step(0), rest > old_period - 0.5 and rest - old_period or rest)
  local held = math.max(level + since * old_rate / 1000000, -old_capacity)
  held = held < 0 and math.max(held, -capacity) or held * rate / old_rate
  level = held - since * rate / 1000000
end

local function available()
  return whole(math.min(-level - since_step(0) * rate / 1000000, capacity))
end

local function limit()
  return capacity
end
