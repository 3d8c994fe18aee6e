-- All changes of a key besides taking permits. ARGV[2] is a list of changes, each a byte and its arguments:
--
--   R  refund: cost, the whole cost charged under the same sequence, how long ago it was due
--      (microseconds), the lower 32 bits of the sequence, whether the whole cost is refunded
--   S  settle: cost, charged whether it is ready or not
--   P  pause: how long (microseconds)
--   E  ends a pause
--   Q  reports the available permits, the limit, when all permits are available again, how long a pause lasts
--      and how long the key lives at least
--   D  reports in detail, for a cost: the available permits of each limit, and when more than that and at least
--      the cost is available
--   X  deletes the key, after all other changes
--   H  held: writes how much the process holds, for policies with places in flight
--   N  writes the policy into the key: the driver decides by ARGV[4] whether it may replace the key's
--
-- ARGV[4]: 1 for a claim by the rule of the fleet, 2 for a policy that was set; how long ago the process
-- started (seconds); and, for a policy that was set, the previous policy: whether an absent key was an idle
-- one, and the parameters.
--
-- The answer is the number of the request, the generation, and for each Q the numbers of `available` and of
-- `limit`, the microseconds until all permits are available, or -1 if that is unpredictable, until a pause ends,
-- and until the key may expire, or -1 if there is no key. For each D it is the number of limits, and for each of
-- these the numbers of `available`, and the microseconds until more is, or -1 if that is unpredictable or never.
--@early
local values, at, size, gone = {request, 0}, 1, #todo, false
while at <= size do
  local what = todo:sub(at, at)
  at = at + 1
  if what == 'R' then
    local cost, all, ago, charge_sequence, whole
    cost, at = read_cost(todo, at)
    all, at = read_cost(todo, at)
    ago, charge_sequence, whole, at = struct.unpack('<dI4B', todo, at)
    charge_sequence = sequence - (sequence - charge_sequence) % 4294967296
    -- If the key is lost, so is the charge.
    if blob then
      local is_last = charge_sequence == sequence
      -- A refund gives no credit across a pause, even one that has ended: only the debt beyond its end comes back,
      -- and that only if nothing was charged since, where the key does not say how much that was.
      local is_paid = pause + ago > 0 and pause ~= 0 and sequence - charge_sequence > 1
      refund(cost, all, ago, is_last, charge_sequence, is_paid)
      if pause ~= 0 then halt(pause) end
      -- The charge is undone: the one before it is the last now.
      if is_last and whole == 1 then sequence = sequence - 1 end
      dirty = true
    end
  elseif what == 'S' then
    local cost
    cost, at = read_cost(todo, at)
    charge(0, cost)
    sequence = sequence + 1
    dirty = true
  elseif what == 'P' then
    local duration
    duration, at = struct.unpack('<d', todo, at)
    local owes = halt(duration, true)
    if pause <= 0 then owed = owes end
    if duration > pause then pause = duration end
    sequence = sequence + 1
    dirty = true
  elseif what == 'E' then
    if pause > 0 then
      -- What was halted is due at the end of the pause. It becomes due now, or when the debt is paid.
      local early = pause - math.max(owed, 0)
      if early > 0 then unhalt(early) end
      pause = -0.001
      sequence = sequence + 1
      dirty = true
    end
  elseif what == 'Q' then
    local available_now = pause > 0 and nothing() or available()
    write_cost(values, available_now)
    write_cost(values, limit())
    local reset, unknown = forget()
    reset = math.max(reset, pause)
    values[#values + 1] = unknown and -1 or math.ceil(math.min(math.max(reset - 0.001, 0), 9007199254740991))
    values[#values + 1] = math.ceil(math.min(math.max(pause, 0), 9007199254740991))
    values[#values + 1] = blob and math.max(deadline * 1000000 - now, 0) or -1
  elseif what == 'D' then
    local cost
    cost, at = read_cost(todo, at)
    local count, first = 0, #values + 1
    values[first] = 0
    -- Nothing is granted while it is shut.
    limits(math.max(pause, 0), function(shut, there, ready)
      if shut > 0.001 then there = less(there, there) end
      local after, unknown = ready(beyond(there, cost))
      write_cost(values, there)
      count, after = count + 1, math.max(after, shut)
      local is_known = not unknown and after < math.huge
      values[#values + 1] = is_known and math.ceil(math.min(math.max(after - 0.001, 0), 9007199254740991)) or -1
    end)
    values[first] = count
  elseif what == 'X' then
    gone = true
  else
    dirty = true
  end
end
if renewed then dirty, sequence = true, sequence + 1 end
if gone then redis.call('DEL', key) elseif dirty then save() end
values[2] = generation
return values
