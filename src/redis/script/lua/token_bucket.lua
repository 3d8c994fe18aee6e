-- TokenBucket, Gcra: all permits of a request must be there. `level` is minus the tokens, as if they came
-- continuously; with a `period` (microseconds) they count from the next step on. Steps are counted from the
-- epoch.
--@ params rate capacity initial period
--@ short dI4 capacity 0
--@ fields d level
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
  local full = (at - since) * rate / 1000000 - capacity
  if level < full - rate / 1000000 then level = full end
  level = level + n
end

local function forget()
  local after
  after = $ready(capacity)
  return after
end
--@ change

-- Exact if there was no other charge since. Otherwise no more than time has not replenished already, nor will
-- before the debt is paid; and nothing if a pause and later charges have paid for it.
local function refund(n, all, ago, is_last, _, is_paid)
  if not is_last then
    local from, to = since_step(-ago), since_step(0)
    local left = all - (ago + from - to) * rate / 1000000 - math.max(level + to * rate / 1000000, 0)
    n = is_paid and 0 or math.max(math.min(n, left), 0)
  end
  level = level - n
end

local function halt(duration)
  local owes = level * 1000000 / rate
  level = math.max(level, duration * rate / 1000000)
  return owes
end

local function unhalt(early)
  level = level - early * rate / 1000000
end

-- What is stored keeps its number, debt keeps its time. Where the steps change, the part of a step that has
-- passed counts now.
local function migrate(old_rate, old_capacity, _, old_period)
  local since = period == old_period and since_step(0) or 0
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
