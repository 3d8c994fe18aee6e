-- Everything else that is done to a key. ARGV[2] is a list of what to do, each a byte and what belongs
-- to it:
--
--   R  refund: cost, all that is charged under the same sequence, how long ago it was due
--      (microseconds), the lower 32 bits of the sequence, whether it is all
--   S  settle: cost, charged whether it is ready or not
--   P  pause: how long (microseconds)
--   Q  asks what is available, what the limit is, when all is there again, how long a pause lasts and how long
--      the key lives at least
--   X  deletes the key, after all else
--   H  held: writes how much the asker holds, for policies with places in flight
--   N  writes the policy into the key: ARGV[4] says whether the key may become this policy's, and the driver
--      decides it
--
-- ARGV[4]: 1 if the policy is to be that of the key by the rule of the fleet, 2 if it was set; how long ago
-- the process started (seconds); and, if it was set, of the policy before that whether an absent key was an
-- idle one, and the parameters.
--
-- The answer is the generation, and for each Q its parts: the numbers of `available` and of `limit`, the
-- microseconds until all is there, or -1 if time does not tell, those until a pause ends, and those until
-- the key may expire, or -1 if there is none.
--@early
local values, at, size, gone = {0}, 1, #todo, false
while at <= size do
  local what = todo:sub(at, at)
  at = at + 1
  if what == 'R' then
    local cost, all, ago, charge_sequence, whole
    cost, at = read_cost(todo, at)
    all, at = read_cost(todo, at)
    ago, charge_sequence, whole, at = struct.unpack('<dI4B', todo, at)
    charge_sequence = sequence - (sequence - charge_sequence) % 4294967296
    -- With the key the charge has gone, too.
    if blob then
      local is_last = charge_sequence == sequence
      refund(cost, all, ago, is_last, charge_sequence)
      -- Nothing comes back that a pause has taken, though it may have ended.
      if pause ~= 0 then halt(pause) end
      -- As if it had never been: the charge before it is the last one now.
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
    if duration > pause then pause = duration end
    halt(duration)
    sequence = sequence + 1
    dirty = true
  elseif what == 'Q' then
    local available_now = pause > 0 and nothing() or available()
    write_cost(values, available_now)
    write_cost(values, limit())
    local reset, unknown = forget()
    reset = math.max(reset, pause)
    values[#values + 1] = unknown and -1 or math.ceil(math.min(math.max(reset - 0.001, 0), 9007199254740991))
    values[#values + 1] = math.ceil(math.min(math.max(pause, 0), 9007199254740991))
    values[#values + 1] = blob and math.max(deadline * 1000000 - now, 0) or -1
  elseif what == 'X' then
    gone = true
  else
    dirty = true
  end
end
if renewed then dirty, sequence = true, sequence + 1 end
if gone then redis.call('DEL', key) elseif dirty then save() end
values[1] = generation
return values
