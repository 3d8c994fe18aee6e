-- The first half of every script: reads the time, once, and the key, and lets the state pass to now.
--
-- KEYS[1]  the key
-- ARGV[1]  the policy, as wire.rs writes it: stamp, mark, lasting, the number of the request, and the parameters;
--          for take.lua the first of the calls behind that; and at the end, if the stamp is odd, version, generation, grace
-- ARGV[2]  for take.lua the other calls, for change.lua the changes
-- ARGV[3]  the id of the process, what it holds, whether it waits: only for policies with places in flight
-- ARGV[4]  for change.lua only: a claim to the policy of the key, or nothing
--
-- Every reply begins with the number of its request.
--
-- The key holds: stamp, mark, sequence, deadline, last; the policy's fields; the levels of lows.lua, if there are any,
-- which the length tells; its parameters; the extension, if there is one; the policy's tail. The stamp is a hash of the policy's name x 256, + the format's
-- number x 16, + 8 in a key with an extension, + 4 if an absent key is an idle one, + 2 if the parameters have
-- their short form, + 1 in a request with more numbers at its end. The mark is a hash of the parameters. Both
-- together are compared as one float: they are equal only if there is neither an extension nor more numbers,
-- so a usual call reads nothing else. `sequence` counts charges from the microsecond in which the key began, so
-- that a refund can tell whether there was another charge since. `deadline` is a second before which the key does
-- not expire. `last` is when the state was true, in microseconds of the server's clock: if that has gone
-- back, no time has passed.
--
-- The extension: the pause, and how long what was owed before it takes (microseconds); version, generation; the second in which a process that has this
-- policy in its code last used the key (without the extension: that of `last`); and the second in which the
-- process that took the key over started, or 0.
local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
--@start
local sequence, deadline, last, elapsed = now, 0, now, 0
local pause, owed, vouched, installed, dirty, ends = 0, 0, 0, 0, false, #params
local version, generation, grace = 0, 0, 0
local its_terms, its_at, stamp, mark
--@tail stamp, mark = struct.unpack('<I4I4', params)
--@change local second, claim, built, earlier, renewed = math.min(math.floor(now / 1000000), 4294967295), 0, 0, nil, false
--@change if #ARGV[4] > 0 then claim, built = struct.unpack('<BI4', ARGV[4]) end
--@held local marks = {}
--@lows local had_lows = false
--@policy

if blob then
  if #blob < $SIZE then return {request, 'foreign'} end
  --@lows had_lows = #blob == $SHORT_WITH_LOWS or #blob > $LONG_EXTENDED
  --@lows if had_lows then
  --@lows   its_terms, sequence, deadline, last, $FIELDS, low, low2, low3, low4, its_at = struct.unpack('<d$HEAD$FORMATdddd', blob)
  --@lows   its_at = its_at + 16
  --@lows else
  its_terms, sequence, deadline, last, $FIELDS, its_at = struct.unpack('<d$HEAD$FORMAT', blob)
  --@lows end
end
if its_terms ~= terms then
  --@plain stamp, mark = struct.unpack('<I4I4', params)
  if stamp % 2 == 1 then
    ends = ends - 12
    version, generation, grace = struct.unpack('<I4I4I4', params, ends + 1)
  end
  if not blob then
    -- A new limiter that differs from an idle one is written even if the call is refused, or it would never fill.
    --@take dirty = lasting > 0
    --@take $begin(stamp % 8 > 3)
    --@change if claim == 2 then generation = math.max(generation + 1, second) end
    -- A set policy replaces the previous one, also where the key is absent.
    --@change if #ARGV[4] > 5 then become(ARGV[4]:sub(7), nil, ARGV[4]:byte(6) > 0) else begin(stamp % 8 > 3) end
  else
    local its_stamp, its_mark = struct.unpack('<I4I4', blob)
    local its_size = its_stamp % 4 > 1 and $SHORT or $LENGTH
    local extended = its_stamp % 16 > 7
    -- Another kind of policy, or another format.
    if its_stamp - its_stamp % 16 ~= stamp - stamp % 16 or #blob < its_at - 1 + its_size + (extended and 32 or 0) then
      return {request, 'foreign'}
    end
    local theirs, its_version, its_generation = blob:sub(its_at, its_at + its_size - 1), 0, 0
    its_at = its_at + its_size
    vouched = math.floor(last / 1000000)
    if extended then
      pause, owed, its_version, its_generation, vouched, installed, its_at = struct.unpack('<ddI4I4I4I4', blob, its_at)
      its_stamp = its_stamp - 8
    end
    local quiet = math.min(math.max(math.floor(now / 1000000) - vouched, 0), 4294967295)
    local same = its_mark == mark and its_stamp == stamp - stamp % 2
    if not same or its_version ~= version or its_generation ~= generation or (grace > 0 and quiet > grace) then
      local taken = math.min(math.max(math.floor(now / 1000000) - installed, 0), 4294967295)
      -- Setting what is in force is agreement, unless a later version holds it: its rank stays.
      --@change local agreed = claim == 2 and same and version >= its_version
      --@change if agreed then
      --@change   if version == its_version then generation = math.max(generation, its_generation) end
      --@change elseif claim == 2 and version >= its_version then
      --@change   renewed, generation = true, math.max(generation + 1, its_generation + 1, second)
      --@change elseif claim == 1 then
      --@change   renewed = version > its_version or version == its_version and (generation > its_generation or
      --@change     generation == its_generation and generation == 0 and (quiet > 600 or quiet > 10 and built < taken))
      --@change end
      --@change if not renewed and not agreed then
        return {request, 'other', its_generation, struct.pack('<I4I4I4I4', its_stamp, its_version, quiet, taken) .. theirs}
      --@change end
      --@change if renewed then
      --@change   if its_stamp % 4 > 1 then theirs = struct.pack('<$DOUBLES', $WIDEN) end
      --@change   earlier, vouched, installed = theirs, second, math.max(second - built, 1)
      --@change end
    end
    -- A refused call shows, too, that processes with this policy are in use.
    --@take if grace == 0 and quiet > 5 then dirty = true end
  end
else
  --@tail its_at = its_at + (stamp % 4 > 1 and $SHORT or $LENGTH)
  --@take if now - last > 5000000 then dirty = true end
end
if blob then
  --@tail read(blob, its_at, #blob)
  -- If the clock has gone back, the new time is written even for a refusal: until then, no time passes.
  if now > last then elapsed = now - last elseif now < last then dirty = true end
  -- After its end a pause is negative: how long ago it ended, or -0.001 for now.
  if pause ~= 0 then
    pause, owed = pause - elapsed, owed - elapsed
    if pause == 0 then pause = -0.001 end
  end
  -- After a change refunds of earlier charges return nothing, so the end of a pause does not matter any more.
  --@change if renewed and pause < 0 then pause = 0 end
  --@change if earlier then become(earlier, elapsed) else resume(elapsed) end
  --@take $resume(elapsed)
end
