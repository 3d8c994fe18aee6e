-- SmoothBursty: a request waits for what was taken before it. `level` is the debt in permits; below zero it is
-- the store, which holds what `burst` (microseconds) yields at `rate` a second.
--@ params rate burst
--@ short dI5
--@ fields d level
local function begin(idle)
  level = idle and -burst * rate / 1000000 or 0
end

local function resume(elapsed)
  level = level - elapsed * rate / 1000000
end

-- No request takes longer than 2^62 ns.
local function ready(n)
  return n > rate * 4611686018.427387904 and math.huge or level * 1000000 / rate
end

-- A level within a microsecond of a full store stays as it is: waits are rounded up to whole microseconds, and
-- with a burst of zero each grant would lose the difference.
local function charge(at, n)
  local full = (at - burst) * rate / 1000000
  if level < full - rate / 1000000 then level = full end
  level = level + n
end

local function forget()
  return level * 1000000 / rate + burst
end
--@ change

-- Exact if there was no other charge since. Otherwise no more than time has not replenished already, and no more
-- than the store holds; and nothing before the charge is due: others are booked behind it, and the next caller
-- would be due together with the last of them; and nothing if a pause and later charges have paid for it.
local function refund(n, all, ago, is_last, _, is_paid)
  if not is_last then
    local left = math.min(all - ago * rate / 1000000, burst * rate / 1000000)
    n = (ago < 0 or is_paid) and 0 or math.max(math.min(n, left), 0)
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

-- What is stored or owed keeps its time.
local function migrate(old_rate, old_burst)
  level = math.max(level, -old_burst * old_rate / 1000000) * rate / old_rate
end

local function available()
  return whole(math.min(-level, burst * rate / 1000000))
end

local function limit()
  return whole(burst * rate / 1000000)
end
