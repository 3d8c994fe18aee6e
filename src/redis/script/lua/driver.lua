-- What every script begins with: the time, once; the key; the state as it is now.
--
-- KEYS[1]  the key
-- ARGV[1]  the policy: its mark, its generation, whether an absent key is an idle one, parameters; for
--          take.lua the first of the calls behind that
-- ARGV[2]  what to do, as take.lua and change.lua say
-- ARGV[3]  who asks, and how much it holds: for policies with places in flight, else nothing
-- ARGV[4]  to change.lua only: mark and parameters of the generation before the first change, or nothing
--
-- The key holds: mark, sequence, deadline, last; the policy's fields; if there was a pause or is a later
-- generation, those; the policy's tail. A mark with its top bit set says that there is one of those.
-- `last` is when the state was true, in microseconds of the server's clock: if that has gone back, no
-- time has passed. `deadline` is a second before which the key does not expire. `sequence` counts
-- charges, so that a refund can tell whether anybody was charged since.
local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
--@start
local sequence, deadline, last, elapsed = 0, 0, now, 0
local pause, known, theirs, dirty = 0, 0, nil, false
--@change local earlier, renewed
--@policy

if not blob then
  sequence = now % 4294967296
  $begin(idle == 1)
else
  if #blob < $SIZE then return {'foreign'} end
  local its_mark, at
  its_mark, sequence, deadline, last, $FIELDS, at = struct.unpack('<I4I4I4d$FORMAT', blob)
  if its_mark >= 2147483648 then
    its_mark = its_mark - 2147483648
    if #blob < at + 15 then return {'foreign'} end
    local size
    pause, known, size, at = struct.unpack('<dI4I4', blob, at)
    if size ~= (known > 0 and $LENGTH or 0) or #blob < at + size - 1 then return {'foreign'} end
    theirs = blob:sub(at, at + size - 1)
    at = at + size
  end
  if its_mark ~= mark or known ~= generation then
    -- The upper bits of a mark are the kind of policy: who has another is not one of us.
    if math.floor(its_mark / 2097152) ~= math.floor(mark / 2097152) then return {'foreign'} end
    if known > generation then return {'adopt', known, theirs} end
    if known == generation then return {'conflict', known, theirs} end
    --@take return {'older', known}
    --@change renewed = true
    --@change if known > 0 then earlier = theirs
    --@change elseif #ARGV[4] == $LENGTH + 4 and struct.unpack('<I4', ARGV[4]) == its_mark then earlier = ARGV[4]:sub(5) end
  end
  --@tail read(blob, at, #blob)
  -- If the clock has gone back, that is written whatever becomes of the call: until then, no time passes.
  if now > last then elapsed = now - last elseif now < last then dirty = true end
  -- Once it has ended it says how long ago that was, or -0.001 for now.
  if pause ~= 0 then
    pause = pause - elapsed
    if pause == 0 then pause = -0.001 end
  end
  -- Nothing that was charged before a change comes back behind it.
  --@change if renewed and pause < 0 then pause = 0 end
  --@change if earlier then become(earlier, elapsed) else resume(elapsed) end
  --@take $resume(elapsed)
end
