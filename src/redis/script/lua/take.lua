-- Takes permits for calls, in their order. Calls come in runs: the cost, the number of calls, how far ahead
-- they may be booked, how long they wait at most (microseconds), and 1 if they are new.
-- The first run is behind the parameters, so that a lone call is read at once; ARGV[2] has the others, if any.
--
-- The answer is a number for each call, wait x 4 + verdict: 0 booked, 1 later, 2 refused, 3 queue full. Waits
-- are cut off at 2^49 - 1; 2^49 + the least wait if it is unpredictable; 2^50 if it never ends. The numbers
-- follow the sequence before the first booking, and the number of calls that were granted at once. A lone call
-- that was booked gets one number: the lower 32 bits of its sequence x 2^20 + wait x 4; one that was refused,
-- its own number. It is packed behind the number of the request, which costs less than a table.
--
-- A call that must wait for a later request blocks those behind it: they are projected as if all calls before
-- them had been charged, but nothing is charged.

--@early
-- A lone call: a refusal must cost next to nothing. Due within a thousandth of a microsecond is due.
--@alone if count == 1 and not todo then
--@alone   local after
--@alone   after = $ready(cost)
--@alone   if pause > after then after = pause end
--@alone   local wait = after > 0 and math.ceil(after - 0.001) or 0
--@alone   if wait > limit then
--@alone     if wait > patience and wait < 562949953421312 and not dirty then return struct.pack('<I4d', request, wait * 4 + 2) end
--@alone   elseif wait < 262144 then
--@alone     $charge(after > 0 and after or 0, cost)
--@alone     sequence = sequence + 1
--@alone     $save()
--@alone     return struct.pack('<I4d', request, sequence % 4294967296 * 1048576 + wait * 4)
--@alone   end
--@alone end
-- The number of the request, the sequence, the number of first calls that are granted at once, and then a number for
-- each other call.
local values, filled, source, first = {request, sequence, 0}, 3, params, 1

-- As for a lone call, as long as all are booked: other answers need far more code.
--@pasted local told
--@pasted repeat
--@pasted   for call = 1, count do
--@pasted     local after
--@pasted     after = $ready(cost)
--@pasted     if pause > after then after = pause end
--@pasted     local wait = after > 0.001 and math.ceil(after - 0.001) or 0
--@pasted     if wait > limit then told, first = true, call break end
--@pasted     $charge(after > 0 and after or 0, cost)
--@pasted     sequence = sequence + 1
--@pasted     if wait == 0 and filled == 3 then
--@pasted       values[3] = values[3] + 1
--@pasted     else
--@pasted       filled = filled + 1
--@pasted       values[filled] = wait * 4
--@pasted     end
--@pasted   end
--@pasted   if told then break end
--@pasted   if at > ends then
--@pasted     if source == todo or not todo or todo == '' then
--@pasted       $save()
--@pasted       return values
--@pasted     end
--@pasted     source, at, ends = todo, 1, #todo
--@pasted   end
--@pasted   cost, count, limit, patience, fresh, at = $NEXT
--@pasted until false
--@late
local booked, blocked, opaque = sequence ~= values[2], false, false
--@punish local kept

-- When the call before is due: a window of a grid that was changed may begin earlier.
local latest = 0

local function due(cost)
  local after, unknown, part = ready(cost)
  if latest > after then after = latest end
  if pause > after then after, part = pause, 0 end
  return after, unknown or opaque, part, after > 0 and math.min(math.ceil(after - 0.001), 562949953421311) or 0
end

--@room local function full_for(cost) return math.min(math.ceil(room(cost)), 562949953421311) end

-- Only the refusal of a new call is punished: a waiter that is late is not refused by the rule. The state in
-- the key decides, not the projection behind a blocked call.
--@punish local function punish(cost)
--@punish   if not blocked then return refused(cost) end
--@punish   local reckoned = state()
--@punish   restore(kept)
--@punish   local locked = refused(cost)
--@punish   if locked then save() kept = state() end
--@punish   restore(reckoned)
--@punish   if locked then refused(cost) end
--@punish   return locked
--@punish end

local function block()
  if blocked then return end
  if booked or dirty then save() end
  blocked, booked, dirty = true, false, false
  --@punish kept = state()
end

local function ask(cost, limit, patience, fresh)
  local after, unknown, part, wait = due(cost)
  if after == math.huge then return 4503599627370498, part end
  if wait <= limit and not (blocked or unknown) then
    --@room if wait > 0 and fresh == 1 then local full = full_for(cost) if full > 0 then return full * 4 + 3, part end end
    latest = after > 0 and after or 0
    charge(latest, cost)
    sequence = sequence + 1
    booked = true
    return wait * 4, part
  end
  if wait > patience or (unknown and patience == 0) then
    --@punish if fresh == 1 and punish(cost) then
    --@punish   dirty = not blocked
    --@punish   after, unknown, part, wait = due(cost)
    --@punish end
    return (unknown and wait + 562949953421312 or wait) * 4 + 2, part
  end
  -- A call without patience does not wait for those ahead, though permits may have come back for all of them. That
  -- is no refusal by the policy.
  if blocked and patience == 0 then return 2, part end
  --@room if fresh == 1 then local full = full_for(cost) if full > 0 then return full * 4 + 3, part end end
  --@held if not blocked then for i = 1, #marks do marks[i](patience) end end
  block()
  -- Behind a call whose wait is unpredictable nothing is projected.
  if not opaque then
    latest = after > 0 and after or 0
    charge(latest, cost)
  end
  opaque = unknown
  return (unknown and wait + 562949953421312 or wait) * 4 + 1, part
end

while true do
  for call = first, count do
    local value, part = ask(cost, limit, patience, fresh)
    if value == 0 and filled == 3 then
      values[3] = values[3] + 1
    else
      filled = filled + 1
      values[filled] = value
      --@parts filled = filled + 1
      --@parts values[filled] = part or 0
    end
  end
  if at > ends then
    if source == todo or not todo or todo == '' then break end
    source, at, ends = todo, 1, #todo
  end
  cost, count, limit, patience, fresh, at = $NEXT
  first = 1
end
if booked or dirty then save() end
return values
