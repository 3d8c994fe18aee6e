-- LockOut: a refusal by the rule locks it for `duration`; `locked` is the rest of that (microseconds).
--@ params duration
--@ fields d locked
--@ tail
--@ also refused
local rule = ({
--@parts
})[1]

local function begin(idle)
  locked = 0
  rule.begin(idle)
end

local function read(bytes, at, last)
  rule.load(bytes, at, last)
end

local function write(head)
  return head .. rule.save()
end

local function resume(elapsed)
  locked = locked - elapsed
  rule.resume(elapsed)
end

local function ready(cost)
  local after, unknown, part = rule.ready(cost)
  if locked > 0 then
    part = 0
    if locked > after then after = locked end
  end
  return after, unknown, part
end

-- Whether a refusal locks: not while it is locked. A cost above the capacity does not come here.
local function refused(cost)
  local inner = rule.refused and rule.refused(cost)
  local after, unknown = rule.ready(cost)
  if locked > 0 or duration == 0 or not (unknown or after > 0.001) then return inner end
  locked = duration
  return true
end

local function charge(at, cost)
  rule.charge(at, cost)
end

local function forget()
  local after, unknown = rule.forget()
  return math.max(after, locked), unknown
end

--@room local function room(cost) return rule.room(cost) end
--@ change

local function refund(...)
  rule.refund(...)
end

local function halt(duration, begins)
  return rule.halt(duration, begins)
end

local function unhalt(early)
  rule.unhalt(early)
end

-- A lock that has begun keeps its end.
local function become(bytes, elapsed, idle)
  locked = elapsed and locked - elapsed or 0
  rule.become(bytes, elapsed, idle)
end

local function available()
  local available = rule.available()
  return locked > 0 and less(available, available) or available
end

local function limit()
  return rule.limit()
end

local function limits(shut, add)
  rule.limits(math.max(shut, locked), add)
end
