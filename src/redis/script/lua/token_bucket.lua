-- TokenBucket, Gcra: all permits of a request must be there. `level` is minus the tokens, as if they came
-- continuously; with a `period` (microseconds) they count from the next step on. Steps are counted from the
-- epoch.
--@ params rate capacity initial period
--@ fields d level
-- How long before `at` the last step was. A step within the next half microsecond counts as reached: the
-- server's time is a number of 51 bits.
local function since_step(at)
  if period == 0 then return 0 end
  local since = math.fmod(now + at, period)
  return since > period - 0.5 and since - period or since
end

local function begin(idle)
  level = -math.min(idle and capacity or initial, capacity) - since_step(0) * rate / 1000000
end

local function resume(elapsed)
  level = level - elapsed * rate / 1000000
end

local function ready(n)
  if n > capacity then return math.huge end
  local after = (level + n) * 1000000 / rate
  if period == 0 then return after end
  local since = since_step(after)
  return since > 0.5 and after - since + period or after
end

-- For the microsecond, see SmoothBursty.
local function charge(at, n)
  local full = (at - since_step(at)) * rate / 1000000 - capacity
  if level < full - rate / 1000000 then level = full end
  level = level + n
end

local function forget()
  return ready(capacity)
end
--@ change

-- Exact if there was no other charge since. Otherwise no more than time has not replenished already, nor will
-- before the debt is paid.
local function refund(n, all, ago, is_last)
  if not is_last then
    local from, to = since_step(-ago), since_step(0)
    local left = all - (ago + from - to) * rate / 1000000 - math.max(level + to * rate / 1000000, 0)
    n = math.max(math.min(n, left), 0)
  end
  level = level - n
end

local function halt(duration)
  level = math.max(level, duration * rate / 1000000)
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
