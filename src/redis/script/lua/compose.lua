-- Several rules together: ready when all are, and then charged in all. `since` is when the last booking is due
-- (microseconds from now): a rule that did not limit that booking must not let a later call pass it. The tail
-- has the state of each part, with its length before it.
--@ fields d since
--@ tail
local parts = {
--@parts
}

-- The cost at part `i`, or false if it is zero.
local function share(cost, i)
  if not $SAME then cost = cost[i] end
  return not is_zero(cost) and cost
end

local function begin(idle)
  since = 0
  for i = 1, #parts do parts[i].begin(idle) end
end

local function read(bytes, at, last)
  for i = 1, #parts do
    local size
    size, at = struct.unpack('<I4', bytes, at)
    parts[i].load(bytes, at, at + size - 1)
    at = at + size
  end
end

local function write(head)
  local states = {head}
  for i = 1, #parts do
    local state = parts[i].save()
    states[2 * i], states[2 * i + 1] = struct.pack('<I4', #state), state
  end
  return table.concat(states)
end

local function resume(elapsed)
  since = since - elapsed
  for i = 1, #parts do parts[i].resume(elapsed) end
end

-- The part that limits is the one that is ready last; a part whose time is unpredictable counts as later than
-- all others.
local function ready(cost)
  local after, unknown, holding, longest = since, false, 0, 0.001
  for i = 1, #parts do
    local share = share(cost, i)
    if share then
      local at, unpredictable = parts[i].ready(share)
      if at == math.huge then return at, false, i end
      if at > after then after = at end
      if unpredictable and not unknown or at > longest and (unpredictable or not unknown) then
        holding, longest, unknown = i, math.max(at, 0.001), unpredictable or unknown
      end
    end
  end
  return after, unknown, holding
end

local function charge(at, cost)
  if at > since then since = at end
  for i = 1, #parts do
    local share = share(cost, i)
    if share then parts[i].charge(at, share) end
  end
end

local function forget()
  local after, unknown = since, false
  for i = 1, #parts do
    local part, unpredictable = parts[i].forget()
    after, unknown = math.max(after, part), unknown or unpredictable
  end
  return after, unknown
end

--@room local function room(cost)
--@room   local after = 0
--@room   for i = 1, #parts do
--@room     local share = share(cost, i)
--@room     if share and parts[i].room then after = math.max(after, parts[i].room(share)) end
--@room   end
--@room   return after
--@room end

--@punish local function refused(cost)
--@punish   local any = false
--@punish   for i = 1, #parts do
--@punish     local share = share(cost, i)
--@punish     if share and parts[i].refused and parts[i].refused(share) then any = true end
--@punish   end
--@punish   return any
--@punish end
--@ change

local function refund(cost, all, ...)
  for i = 1, #parts do
    local share = share(cost, i)
    if share then parts[i].refund(share, $SAME and all or all[i], ...) end
  end
end

local function halt(duration, begins)
  local owes = 0
  for i = 1, #parts do owes = math.max(owes, parts[i].halt(duration, begins)) end
  return owes
end

local function unhalt(early)
  for i = 1, #parts do parts[i].unhalt(early) end
end

local function become(bytes, elapsed, idle)
  since = elapsed and since - elapsed or 0
  for i = 1, #parts do parts[i].become(bytes, elapsed, idle) end
end

-- With one cost for all parts the least number counts.
local function together(ask)
  local all = {}
  for i = 1, #parts do
    all[i] = parts[i][ask]()
    if $SAME and i > 1 then all[1] = less(all[1], less(all[1], all[i])) end
  end
  return $SAME and all[1] or all
end

local function available()
  return together('available')
end

local function limit()
  return together('limit')
end

-- With one cost for all parts each of them is a limit.
local function limits(shut, add)
  shut = math.max(shut, since)
  if not $SAME then return add(shut, available(), ready) end
  for i = 1, #parts do parts[i].limits(shut, add) end
end
