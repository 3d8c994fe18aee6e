-- SmoothWarmingUp: `debt` is the time until the next free ticket, `stored` the idle time in store: zero when
-- warm, all of `warm_up` when cold. `moved` is how far the last charge moved the ticket, `before` the store
-- before it. All in microseconds.
--@ params rate warm_up cold
--@ short dI5 3
--@ fields dddd debt stored moved before
local function begin()
  debt, stored, moved, before = 0, warm_up, 0, warm_up
end

local function resume(elapsed)
  debt = debt - elapsed
end

local function ready(n)
  return n > rate * 4611686018.427387904 and math.huge or debt
end

-- Idle time goes into the store; less than a microsecond stays in the ticket: waits are rounded up to whole
-- microseconds.
local function settle(at)
  local spare = at - debt
  if spare >= 1 then
    stored = math.min(stored + spare, warm_up)
    debt = at
  end
end

local function charge(at, n)
  local ticket = debt
  before = stored
  $settle(at)
  -- What the ramp adds: the trapezoid's area above the stable interval, from here to what is left.
  local steep = warm_up * 4 / (5 + cold)
  local flat = warm_up - steep
  local from = math.max(stored - flat, 0) / steep
  stored = math.max(stored - n * 2000000 * (1 + cold) / (5 + cold) / rate, 0)
  local to = math.max(stored - flat, 0) / steep
  debt = debt + n * 1000000 / rate + warm_up * (cold - 1) / (cold + 1) * (from * from - to * to)
  moved = debt - ticket
end

local function forget()
  return debt + warm_up - stored
end
--@ change

-- Exact if there was no other charge since: as if only the rest had been charged. The charge before that one is
-- unknown then, and `moved` is -1. Otherwise at the stable price, and no more than time has not replenished
-- already; nothing before the charge is due, as with SmoothBursty.
local function refund(n, all, ago, is_last, _, is_paid)
  if is_last and moved >= 0 then
    debt, stored, moved = debt - moved, before, -1
    if n < all then charge(-ago, all - n) end
  elseif ago >= 0 and not is_paid then
    debt = debt - math.max(math.min(n * 1000000 / rate, all * 1000000 / rate - ago), 0)
  end
end

local function halt(duration)
  settle(0)
  local owes = debt
  debt = math.max(debt, duration)
  return owes
end

local function unhalt(early)
  debt = debt - early
end

local function migrate(_, old_warm_up)
  local spare = -debt
  if spare >= 1 then stored, debt = math.min(stored + spare, old_warm_up), 0 end
  stored = math.min(stored, warm_up)
end

local function available()
  if debt > 0.001 then return 0 end
  return whole(math.min(stored - debt, warm_up) * rate * (5 + cold) / (2000000 * (1 + cold)))
end

local function limit()
  return whole(warm_up * rate * (5 + cold) / (2000000 * (1 + cold)))
end
