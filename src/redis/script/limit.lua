-- One limit at a key: takes permits, in the order of the calls, and changes the key. For every rule, and for several together.
--
-- KEYS[1]  the key
-- ARGV[1]  the request, as one packed string: to unpack it costs the server a third of what as many arguments would
--
-- The request is a head, the rules, and what to do; each part is described where it is read. From a shell give the format and the
-- numbers, a word each, and the reply is a list. The first takes a permit of 5/s with a store of a second, and may wait 0.25 s; the
-- second asks for the state:
--
--   redis-cli --eval limit.lua KEY , '<I4ddc1 dI4I4BBBB c1Bdddd c1I4ddBI4' 1 2 0 -  0 0 0 0 0 1 1  b 1 5 1000000 0 0  T 1 250000 250000 1 1
--   redis-cli --eval limit.lua KEY , '<I4ddc1 dI4I4BBBB c1Bdddd c1' 1 2 0 -  0 0 0 0 0 1 1  b 1 5 1000000 0 0  Q
--
-- The reply is the number of the request, the sequence before it, and the numbers that each of the things to do reports.
-- All times are microseconds, and all times in the state are counted from now.
--
-- The kinds of rules. `a` to `d` are the parameters, `x` to `w` is the state:
--
--   b  SmoothBursty: a request waits for what was taken before it. a: the rate, b: how long the store takes to fill.
--      x: the debt in permits; below zero it is the store
--   w  SmoothWarmingUp. a: the rate, b: the warm-up, c: the cold factor. x: the time until the next free ticket, y: the idle time in
--      store, zero when warm and b when cold, z: how far the last charge moved the ticket, w: the store before it
--   t  TokenBucket, Gcra: all permits of a request must be there. a: the rate, b: the capacity, c: the first content, d: a period;
--      tokens come in steps of it, counted from the epoch. x: minus the tokens, as if they came continuously, y: the number of the
--      last charge (its lower 32 bits), z: levels, see `note`
--   l  LeakyBucket. a: the rate, b: the capacity, c: 1 for a meter, which serves what fits, and 0 for a queue, which serves when the
--      content before has leaked. x: the content; below zero it has been empty for a time. y, z: as of a TokenBucket
--   f  FixedWindow. a: the limit, b: the window, c: how far into a window the epoch was, -1 for windows that begin with their first
--      charge. x: when the window began, y: what was granted in it, z: the number of its first charge
--   s  SlidingWindowLog and SlidingWindowCounter. a: the limit, b: the window, c: a part of it. The state is a log, see `load`
--   p  InFlight: places. a: how many, b: how many this process holds, c: how long a lease on them lasts, d: how long the process counts
--      as waiting if it must wait, zero without waiters. The state has an entry for each process, see `load`
--   o  LockOut: a refusal by one of the next b rules locks these for a; c and d are the first and the last number of the cost that
--      count there. x: the rest of the lock
--   i  Of several rules, in order. x: when the last booking is due. A rule that did not limit it must not let a later call pass it

-- The head begins with the number of the request. `stamp`: a whole number made of the kinds of the rules (times 2^33) and a hash of
-- their parameters (times 2). `keep`: how long the key lives beyond the time in which it is as new. `alone`: the kind of the rule if
-- there is only one, of the first five, and one run of calls, and no rank; else `-`.
local request = ARGV[2] and struct.pack(unpack(ARGV)) or ARGV[1]
local number, stamp, keep, alone = struct.unpack('<I4ddc1', request)
local time = redis.call('TIME')
local key, now = KEYS[1], time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)

-- What the rules do; a lone SmoothBursty does without, as to define functions costs as much as a decision.
local past, note, ready, charge
if alone ~= 'b' then
  -- How long before `at` the last step of a clock with this period was. A step within the next half microsecond counts as
  -- reached: the server's time is a number of 51 bits.
  past = function(at, period, offset)
    local rest = math.fmod(now + at + offset, period)
    return rest > period - 0.5 and rest - period or rest
  end

  -- How much of a charge of a bucket may still come back: the lowest levels since, as in src/policy/refund_levels.rs. A level is
  -- what is missing from a full store, in permits. `lows` has pairs, the latest first: a level, and the number of a charge. Of
  -- that charge and later ones no more than the level comes back, and nothing of charges before the last pair.
  --
  -- The next charge finds `level`, and `last` is the number of the one before it. Less than a nanosecond of permits is rounding.
  note = function(lows, level, rate, last)
    if level * 1000000000 < rate then return '' end
    if #lows > 47 then
      -- Nearly always, under load: the new level and the latest one would become one. To cut out nothing then, `lows` may be all of
      -- the value, which ends with them.
      local one, _, two, _, three, _, four = struct.unpack('<dI4dI4dI4d', lows, #lows - 47)
      local ratio = level / one
      if ratio > 1 and ratio < one / two and ratio < two / three and ratio < three / four then return lows end
      lows = lows:sub(-48)
    end
    -- Higher levels before this one count no more.
    while lows ~= '' do
      local low, since = struct.unpack('<dI4', lows)
      if low < level then break end
      last, lows = since, lows:sub(13)
    end
    lows = struct.pack('<dI4', level, last) .. lows
    if #lows > 48 then
      -- There is room for four. Of five, the two neighbours whose ratio is smallest become one, with the lower level.
      local one, _, two, _, three, _, four, _, five = struct.unpack('<dI4dI4dI4dI4d', lows)
      local place, least = 1, one / two
      if two / three <= least then place, least = 13, two / three end
      if three / four <= least then place, least = 25, three / four end
      if four / five <= least then place = 37 end
      lows = lows:sub(1, place - 1) .. lows:sub(place + 12)
    end
    return lows
  end

  -- When a rule grants `n` permits.
  ready = function(kind, n, x, y, a, b, c, d)
    if kind == 'w' then return n > a * 4611686018.427387904 and math.huge or x end
    if kind == 'f' then return n > a and math.huge or y + n <= a and x or x + b end
    if n > b then return math.huge end
    if kind == 'l' then return (c == 1 and x + n - b or x) * 1000000 / a end
    local at = (x + n) * 1000000 / a
    local since = d > 0 and past(at, d, 0) or 0
    return since > 0.5 and at - since + d or at
  end

  -- A charge of `n` permits, which is due at `at`. Returns the state after it.
  charge = function(kind, n, at, number, x, y, z, w, a, b, c, d)
    if kind == 'w' then
      -- Idle time goes into the store; less than a microsecond stays in the ticket: waits are rounded up to whole microseconds.
      local ticket, store = x, y
      if at - x >= 1 then x, y = at, math.min(y + at - x, b) end
      -- The stable interval, and what the ramp adds: the trapezoid's area above that, from here to what is left.
      local steep = b * 4 / (5 + c)
      local flat = b - steep
      local from = math.max(y - flat, 0) / steep
      y = math.max(y - n * 2000000 * (1 + c) / (5 + c) / a, 0)
      local to = math.max(y - flat, 0) / steep
      x = x + n * 1000000 / a + b * (c - 1) / (c + 1) * (from * from - to * to)
      return x, y, x - ticket, store
    elseif kind == 'f' then
      -- A number from before the window is used again if all later charges were refunded.
      if at > x + b - 0.001 then
        x, y, z = c < 0 and at or at - math.max(past(at, b, c), 0), 0, number
      elseif number < z then
        z = number
      end
      return x, y + n, z
    end
    -- The content now is no less than nothing, as seen from the last step.
    local missing = x + (kind == 't' and b or 0) - (at - (d > 0 and past(at, d, 0) or 0)) * a / 1000000
    z = note(z, missing, a, y)
    if missing < -a / 1000000 then x = x - missing end
    return x + n, number % 4294967296, z
  end
end

-- The usual call, for half of what it costs below: of one rule, at a key under the same policy, and granted, or refused alone. What
-- does not end here begins again there: nothing has changed.
if blob and alone ~= '-' then
  local its, sequence, last, deadline, size, x, y, z, w
  if alone == 'b' then
    if #blob == 38 then its, sequence, last, deadline, size, x = struct.unpack('<dddI4I2d', blob) end
  elseif alone == 'w' then
    if #blob == 62 then its, sequence, last, deadline, size, x, y, z, w = struct.unpack('<dddI4I2dddd', blob) end
  elseif alone == 'f' then
    if #blob == 54 then its, sequence, last, deadline, size, x, y, z = struct.unpack('<dddI4I2ddd', blob) end
  elseif #blob > 42 then
    its, sequence, last, deadline, size, x, y = struct.unpack('<dddI4I2dI4', blob)
    z = #blob == 91 and blob or #blob > 43 and blob:sub(44) or ''
  end
  if its == stamp and size == #blob and now >= last then
    local a, b, c, d, calls, limit, patience, cost = struct.unpack('<ddddxI4ddxI4', request, 44)
    local before, granted, wait, lows, values, due = sequence, 0, 0, z, nil, nil
    x = x - ((alone == 'w' or alone == 'f') and now - last or (now - last) * a / 1000000)
    while granted < calls do
      if alone == 'b' then
        due = cost > a * 4611686018.427387904 and math.huge or x * 1000000 / a
      else
        due = ready(alone, cost, x, y, a, b, c, d)
      end
      if due > 0 then
        wait = math.ceil(due - 0.001)
        -- A queue that may be full is looked at below.
        if wait > limit or alone == 'l' and c == 0 and math.max(x, 0) + cost > b then break end
      else
        wait, due = 0, 0
      end
      sequence, granted = sequence + 1, granted + 1
      if alone == 'b' then
        local full = (due - b) * a / 1000000
        if x < full - a / 1000000 then x = full end
        x = x + cost
      else
        x, y, z, w = charge(alone, cost, due, sequence, x, y, z, w, a, b, c, d)
      end
      if calls > 1 then
        values = values or {}
        values[granted] = wait * 4
      end
    end
    if granted == calls then
      -- When the rule is as new, and its state.
      local state
      if alone == 'b' then
        due, state = x * 1000000 / a + b, struct.pack('<dddI4I2d', stamp, sequence, now, deadline, size, x)
      elseif alone == 'w' then
        due, state = x + b - y, struct.pack('<dddI4I2dddd', stamp, sequence, now, deadline, size, x, y, z, w)
      elseif alone == 'f' then
        due, state = x + b, struct.pack('<dddI4I2ddd', stamp, sequence, now, deadline, size, x, y, z)
      else
        due, size = (alone == 't' and x + b or x) * 1000000 / a + d, z == lows and size or 43 + #z
        state = struct.pack('<dddI4I2dI4B', stamp, sequence, now, deadline, size, x, y, (size - 43) / 12)
        if z ~= lows then state = state .. z end
      end
      if due < 0 then due = 0 end
      if now + due + keep + 1000000 <= deadline * 1000000 then
        if size == #blob then
          redis.call('SETRANGE', key, '0', state)
        else
          redis.call('SET', key, state, 'KEEPTTL')
        end
        if not values then return struct.pack('<I4dd', number, before, wait * 4) end
        return struct.pack('<I4d' .. ('d'):rep(granted), number, before, unpack(values))
      end
    elseif calls == 1 and wait > patience and wait < 562949953421312 then
      return struct.pack('<I4dd', number, before, wait * 4 + 2)
    end
  end
end

-- All else, as a function: the frame of one with so many variables costs a refusal a tenth.
return (function()

-- The rest of the head. `process`: who asks, for places in flight. `version` and `generation`: the rank of the policy. `idle`: whether
-- an absent key is one that was idle for long. `sets`: whether a policy is set. `width`: the numbers of a cost. `count`: the rules.
local process, version, generation, idle, sets, width, count, at = struct.unpack('<dI4I4BBBB', request, 22)

-- The key: its stamp, plus one if it has a second head; the number of its last charge, counted from the microsecond in which it
-- began; when the state was true; a second before which it does not expire; its length (the lower 16 bits); the second head; the
-- state of each rule.
-- The second head, after a pause or with a rank: the rest of the pause, after its end how long ago that was, as a negative
-- number; how long what was owed before it takes; the rank; the rules, if there is a rank.
local its, sequence, last, deadline, from = stamp, now, now, 0, 1
local pause, owed, rules, renewed = 0, 0, nil, false
if blob then
  its = nil
  local size
  if #blob > 29 then its, sequence, last, deadline, size, from = struct.unpack('<dddI4I2', blob) end
  if size ~= #blob % 65536 then its = nil end
end
if its ~= stamp or version > 0 or generation > 0 then
  -- Data of another program, or another kind of policy.
  if not its or math.floor(its / 8589934592) ~= math.floor(stamp / 8589934592) then
    return struct.pack('<I4d', number, -1)
  end
  local its_version, its_generation = 0, 0
  if its % 2 == 1 then
    local size
    pause, owed, its_version, its_generation, size, from = struct.unpack('<ddI4I4I2', blob, from)
    if size > 0 then rules, from = blob:sub(from, from + size - 1), from + size end
  end
  -- The higher rank is in force, and of equal ranks the policy of the request. A policy that is set gets the highest.
  if sets == 1 then
    if its_version > version then version, generation = its_version, 0 end
    if its_version == version then generation = math.max(generation, its_generation) end
  elseif its_version > version or its_version == version and its_generation > generation then
    local told = struct.pack('<I4ddd', number, -2, its_version, its_generation)
    for i = 1, #rules, 34 do told = told .. rules:sub(i + 2, i + 33) end
    return told
  else
    renewed = blob and (its - its % 2 ~= stamp or its_version ~= version or its_generation ~= generation)
  end
  stamp = sets == 1 and its - its % 2 or stamp
end
-- If the clock has gone back no time has passed.
local elapsed = math.max(now - last, 0)
if pause ~= 0 then
  pause, owed = pause - elapsed, owed - elapsed
  if pause == 0 then pause = -0.001 end
end
-- After a change refunds of earlier charges return nothing, so the end of a pause does not matter any more.
if renewed then
  sequence = sequence + 1
  if pause < 0 then pause = 0 end
end
-- Whether something must be written. A limiter that is not idle when new is written even if the first call is refused, or it
-- would never fill; and the time of a clock that has gone back, and what a waiter or a holder of places says of itself.
local dirty = now < last
-- Whether this is no request for permits.
local changes = request:sub(at + 34 * count, at + 34 * count) ~= 'T'

-- The rules: the kind, the number of the cost that counts there, or zero, and its parameters. Each passes from `last` to now. A
-- new policy is set after the state has passed to now under the one in the key.
local locks, rules_from, first = false, at, from
at = at + 34 * count
local function load()
  local leaves, source, place = {}, request, rules_from
  if sets == 1 and rules then source, place = rules, 1 end
  for i = 1, count do
    local kind, share, a, b, c, d
    kind, share, a, b, c, d, place = struct.unpack('<c1Bdddd', source, place)
    local p = {kind = kind, share = share, a = a, b = b, c = c, d = d, x = 0, y = 0, z = 0, w = 0}
    if kind == 'b' then
      if blob then
        p.x, from = struct.unpack('<d', blob, from)
        p.x = p.x - elapsed * a / 1000000
      elseif idle == 1 then
        p.x = -b * a / 1000000
      end
    elseif kind == 'w' then
      p.y, p.w = b, b
      if blob then
        p.x, p.y, p.z, p.w, from = struct.unpack('<dddd', blob, from)
        p.x = p.x - elapsed
      end
    elseif kind == 't' or kind == 'l' then
      p.y, p.z = sequence % 4294967296, ''
      if blob then
        local y, levels
        p.x, y, levels, from = struct.unpack('<dI4B', blob, from)
        p.x = p.x - elapsed * a / 1000000
        if not renewed then p.y, p.z = y, blob:sub(from, from + 12 * levels - 1) end
        from = from + 12 * levels
      elseif kind == 't' then
        p.x = -math.min(idle == 1 and b or c, b) - (d > 0 and past(0, d, 0) or 0) * a / 1000000
      end
    elseif kind == 'f' then
      -- A new one began long ago: otherwise a longer window that is set later would have begun already.
      p.x = -4503599627370496
      if blob then
        p.x, p.y, p.z, from = struct.unpack('<ddd', blob, from)
        p.x = p.x - elapsed
        -- If the clock has gone back, the count is that of the window in which it is now.
        if now < last and p.x + b > 0 then
          p.x = math.max(p.x, 0)
          if c >= 0 then p.x = p.x - math.max(past(p.x, b, c), 0) end
        end
      end
    elseif kind == 's' then
      -- Never more than `most` in `window`. The state is a log: for each part of a window with a grant the time of its last grant,
      -- the permits, and the lower 32 bits of the number of its first charge; the oldest first. Times are counted from the log's base,
      -- which was `age` ago, so that nothing is rewritten as time passes. `granted` is the sum of all permits, `newest` the time of
      -- the last grant. A `part` of a nanosecond makes it exact.
      --
      -- A log may be long: no call copies it, and `save` puts it together once. An entry has a place, 16 to the next: from `first`
      -- to `stop` in the bytes of `log`, from there to `behind` in `added`, three numbers each. `looked` is the place up to which
      -- `ready` has looked, and `sum` the permits before it, so that the next call goes on from there. `left` has the permits that
      -- refunds have left in entries of `log`.
      local most, window, part = a, b, c
      local log, first, stop, behind, added, looked, sum, left = '', 1, 0, 1, {}, 1, 0, {}
      local age, granted, newest = 0, 0, 0
      if blob then
        local size
        age, granted, newest, size, from = struct.unpack('<dddI4', blob, from)
        age, log, first, stop = age + elapsed, blob, from, from + size - 1
        behind, looked, from = stop + 1, first, stop + 1
      end

      local function entry(at)
        if at <= stop then
          local time, permits, number = struct.unpack('<dI4I4', log, at)
          return time, left[at] or permits, number
        end
        at = (at - stop - 1) / 16 * 3
        return added[at + 1], added[at + 2], added[at + 3]
      end

      local function part_of(at)
        return part <= 1 and at or at - past(at, part, 0)
      end

      local function ended(time)
        return part_of(time - age) + window
      end

      -- When enough permits have left the window; not before an earlier caller.
      function p.ready(n)
        if n > most then return math.huge end
        local over = granted + n - most
        if over <= 0 then return newest - age end
        local time, permits
        while looked > first do
          time, permits = entry(looked - 16)
          if sum - permits < over then break end
          looked, sum = looked - 16, sum - permits
        end
        while sum < over do
          time, permits = entry(looked)
          looked, sum = looked + 16, sum + permits
        end
        return math.max(newest - age, ended(time))
      end

      -- Forgets the entries that have ended by now, not those that will have at the grant: a caller that is booked ahead may leave.
      local function drop_ended()
        while first < behind do
          local oldest, permits = entry(first)
          if ended(oldest) > 0.001 then return end
          first, granted = first + 16, granted - permits
          if looked < first then looked = first else sum = sum - permits end
        end
      end

      function p.charge(at, n)
        local time = math.max(age + at, newest)
        drop_ended()
        newest = time
        local place, total, number = behind, n, (sequence + 1) % 4294967296
        if first < behind then
          local last, permits, its_number = entry(behind - 16)
          if math.abs(part_of(last - age) - part_of(time - age)) < (part <= 1 and 0.001 or 0.5) then
            n = math.min(n, 4294967295 - permits)
            place, total, number = behind - 16, n + permits, its_number
            if looked == behind then sum = sum + n end
            if place < stop then stop = place - 1 end
          end
        end
        granted, behind = granted + n, place + 16
        local i = (place - stop - 1) / 16 * 3
        added[i + 1], added[i + 2], added[i + 3] = time, total, number
      end

      -- When the log is empty.
      function p.idle()
        return first < behind and ended((entry(behind - 16))) or 0
      end

      function p.save()
        local pieces, piece = {}, first
        if changes then
          local places = {}
          for at in pairs(left) do
            if at >= first and at <= stop then places[#places + 1] = at end
          end
          table.sort(places)
          for _, at in ipairs(places) do
            pieces[#pieces + 1] = log:sub(piece, at + 7) .. struct.pack('<I4', left[at])
            piece = at + 12
          end
        end
        pieces[#pieces + 1] = log:sub(piece, stop)
        for at = math.max(first, stop + 1), behind - 1, 16 do
          pieces[#pieces + 1] = struct.pack('<dI4I4', entry(at))
        end
        local entries = table.concat(pieces)
        return struct.pack('<dddI4', age, granted, newest, #entries) .. entries
      end

      if changes then
        -- Exact. The entry is the last one whose first charge was not later. Only the lower bits of a sequence are known: if the charge
        -- is older than the entry by half their range (microseconds), the sequence is that of another charge.
        function p.refund(n, ago, charge)
          local low, high, since = 0, (behind - first) / 16, sequence - charge
          while low < high do
            local middle = math.floor((low + high) / 2)
            local _, _, number = entry(first + 16 * middle)
            if (sequence - number) % 4294967296 >= since then low = middle + 1 else high = middle end
          end
          if low == 0 then return end
          local at = first + 16 * (low - 1)
          local time, permits = entry(at)
          if ago + time - age > 2147483648 + part then return end
          n = math.min(n, permits)
          granted = granted - n
          if looked > at then sum = sum - n end
          if at <= stop then left[at] = permits - n else added[(at - stop - 1) / 16 * 3 + 2] = permits - n end
          -- Where nothing is left of the last entry, the one before it is the newest.
          while first < behind do
            local time, permits = entry(behind - 16)
            newest = time
            if permits > 0 then return end
            behind = behind - 16
            stop = math.min(stop, behind - 1)
            looked = math.min(looked, behind)
          end
          newest = 0
        end

        function p.free()
          drop_ended()
          return math.max(most - granted, 0)
        end

        function p.limit(most_now, window_now, part_now)
          most, window, part = most_now, window_now, part_now
        end
      end
    elseif kind == 'p' then
      -- At most `most` places are held at any time. The state has an entry for each process: its id, how much it holds, when its lease
      -- on that ends; when its turn began, until when it waits, and for how much. Times are counted from the base, which was `age`
      -- ago. A process sets its own entry in each request, so the next request repairs a lost reply. A process that sends no more
      -- loses what it holds when its lease ends, and stops waiting when its next request is overdue.
      --
      -- A process that releases and takes in one request would never leave a place to others. So while others wait, each waiting
      -- process has a share of the places, and the remainder of the division goes round in turns.
      --
      -- `told`: what the process holds; `lasts`: how long a lease lasts; `listens`: how long the process counts as waiting if it
      -- must wait, or zero if it has no waiters.
      local most, told, lasts, listens = a, b, c, d
      -- What the last call needed that found no place.
      p.needs = 0
      -- How long a turn lasts: long beside the time in which the next process notices its end.
      local turn = 100000
      -- A process that has just come is behind all that wait, and before those that have just had a turn.
      local age, held, ends, since, waits, wants = 0, told, 0, -turn, 0, 0
      -- The entries of others that hold or wait; what they hold; the waiting ones; what those hold that do not wait.
      local entries, others, rivals, settled = {}, 0, {}, 0
      if blob then
        local size, found
        age, size, from = struct.unpack('<dI4', blob, from)
        age = age + elapsed
        held, since = 0, age - turn
        for place = from, from + size - 1, 40 do
          local id, n, its_end, began, until_, wish = struct.unpack('<dI4dddI4', blob, place)
          if id == process then
            held, ends, since, waits, wants = n, its_end, began, until_, wish
          else
            if its_end <= age then n = 0 end
            if until_ > age then rivals[#rivals + 1] = {n, began, wish} else settled = settled + n end
            if n > 0 or until_ > age then
              entries[#entries + 1] = blob:sub(place, place + 39)
              others = others + n
            end
          end
        end
        from = from + size
      end
      if held ~= told or not blob and told > 0 then held, dirty = told, true end
      if listens == 0 and waits > age then waits, dirty = 0, true end
      -- Each request renews the lease in time.
      if held > 0 and ends - age < lasts * 0.7 then dirty = true end

      -- The share of each waiting process.
      local function share()
        return math.floor((most - settled) / (#rivals + 1))
      end

      -- Whether a process has waited for a turn for more than its share and one place of the remainder: the others then leave
      -- room for it, as it would never fit beside them.
      local function is_large(holds, n, began)
        return holds + n > share() + 1 and age - began > turn
      end

      -- Whether `n` more may be taken while others wait: up to the share, and beyond it until the turn is over, and after that if
      -- no other turn began earlier.
      local function is_turn(n)
        local share = share()
        local small = held + n <= share
        if not small and (held > share or age - since < turn) then return held <= share end
        local large = is_large(held, n, since)
        for i = 1, #rivals do
          local theirs, began, size = unpack(rivals[i])
          local first = is_large(theirs, size, began)
          if first == large then first = began < since and not small end
          if first and theirs <= share then return false end
        end
        return true
      end

      function p.ready(n)
        if n > most then return math.huge end
        local unknown = held + others + n > most or #rivals > 0 and not is_turn(n)
        p.needs = unknown and n or 0
        return 0, unknown
      end

      function p.charge(_, n)
        if age - since >= turn and held + n > share() then since = age end
        held, waits = held + n, 0
      end

      -- The first call that must wait marks the process as waiting.
      function p.mark(patience)
        local span = math.min(listens, patience)
        if p.needs == 0 or span == 0 then return end
        if waits - age < span / 2 then dirty = true end
        waits, wants = age + span, p.needs
      end

      -- When all places are free is unpredictable; at the latest when the leases end. When the others were written, the key was
      -- set to live until their leases end.
      function p.idle()
        return held > 0 and lasts or 0, held + others > 0
      end

      function p.save()
        local own = held == 0 and waits <= age and '' or struct.pack('<dI4dddI4', process, held, age + lasts, since, waits, wants)
        local all = own .. table.concat(entries)
        return struct.pack('<dI4', age, #all) .. all
      end

      if changes then
        -- The process reports what it holds and what it does not hold any more, so there is nothing to refund.
        function p.refund() end

        function p.free()
          return math.max(most - held - others, 0)
        end

        function p.limit(most_now)
          most = most_now
        end
      end
    else
      if kind == 'o' then locks = true end
      if blob then
        p.x, from = struct.unpack('<d', blob, from)
        p.x = p.x - elapsed
      end
    end
    leaves[i] = p
  end
  return leaves
end
local leaves = load()

-- What is asked for: a cost, or the numbers of it. When the call before is due: a window of a grid that was changed may begin earlier.
-- Whether for how long a call must wait is unknown.
local cost, costs, latest, opaque = 0, nil, 0, false

-- When the rules from `first` to `final` are ready, and the one that is last, as it limits; whether that is unpredictable, which
-- counts as later than all others; and when a bucket has room for a caller that waits.
local function due(first, final)
  local after, unknown, part, longest, room = latest, false, 0, 0.001, 0
  for i = first, final do
    local p, n, at, blind = leaves[i], cost, 0, false
    if costs then n = costs[p.share] or 1 end
    local kind = p.kind
    if n == 0 and count > 1 then
      -- It costs nothing there.
    elseif kind == 'b' then
      -- No request takes longer than 2^62 ns.
      at = n > p.a * 4611686018.427387904 and math.huge or p.x * 1000000 / p.a
    elseif kind == 'i' then
      if p.x > after then after = p.x end
    elseif kind == 'o' then
      if costs then
        n = 0
        for share = p.c, p.d do n = n + costs[share] end
      end
      if n > 0 then at = p.x end
    elseif kind == 's' or kind == 'p' then
      at, blind = p.ready(n)
    else
      at = ready(kind, n, p.x, p.y, p.a, p.b, p.c, p.d)
      if kind == 'l' and p.c == 0 then
        -- Nothing leaks in a pause, but what a pause holds back is no content.
        local held = math.max(pause, 0)
        local over = (math.max(p.x - held * p.a / 1000000, 0) + n - p.b) * 1000000 / p.a
        if over > 0.001 then room = math.max(room, math.ceil(held + over)) end
      end
    end
    if at == math.huge then return at, opaque, i, room end
    if at > after then after = at end
    if blind and not unknown or at > longest and (blind or not unknown) then
      part, longest, unknown = i, math.max(at, 0.001), blind or unknown
    end
    if locks then p.wait, p.blind = at, blind end
  end
  if pause > after then after, part = pause, 0 end
  return after, unknown or opaque, part, room
end

-- Charges the cost to each rule.
local function charge_all(at, settles)
  for i = 1, count do
    local p, n = leaves[i], cost
    if costs then n = costs[p.share] or 1 end
    local kind = p.kind
    if n == 0 and count > 1 then
      -- It costs nothing there.
    elseif kind == 'b' then
      -- A level within a microsecond of a full store stays as it is: waits are rounded up to whole microseconds, and with a burst of
      -- zero each grant would lose the difference.
      local full = (at - p.b) * p.a / 1000000
      if p.x < full - p.a / 1000000 then p.x = full end
      p.x = p.x + n
    elseif kind == 'i' then
      if at > p.x then p.x = at end
    elseif kind == 's' or kind == 'p' then
      -- A process has already reported the places that are settled.
      if kind == 's' or not settles then p.charge(at, n) end
    elseif kind ~= 'o' then
      p.x, p.y, p.z, p.w = charge(kind, n, at, sequence + 1, p.x, p.y, p.z, p.w, p.a, p.b, p.c, p.d)
    end
  end
end

-- Writes the key. One write carries the value and its expiry, which is set only when it has become too short, and then to twice the
-- time needed, but at most a day more. `asks`: writes nothing, and returns when all rules are as new, and whether that is unpredictable.
local new_rules, gone
local function save(asks)
  local need, unknown, states = pause > 0 and pause or 0, false, {}
  for i = 1, count do
    local p, idle_after, blind, state = leaves[i], 0, false, nil
    local kind = p.kind
    if kind == 'b' then
      idle_after, state = p.x * 1000000 / p.a + p.b, struct.pack('<d', p.x)
    elseif kind == 'w' then
      idle_after, state = p.x + p.b - p.y, struct.pack('<dddd', p.x, p.y, p.z, p.w)
    elseif kind == 't' then
      idle_after, state = ready(kind, p.b, p.x, p.y, p.a, p.b, p.c, p.d), struct.pack('<dI4B', p.x, p.y, #p.z / 12) .. p.z
    elseif kind == 'l' then
      idle_after, state = p.x * 1000000 / p.a, struct.pack('<dI4B', p.x, p.y, #p.z / 12) .. p.z
    elseif kind == 'f' then
      idle_after, state = p.x + p.b, struct.pack('<ddd', p.x, p.y, p.z)
    elseif kind == 's' or kind == 'p' then
      idle_after, blind = p.idle()
      state = asks or p.save()
    else
      idle_after, state = p.x, struct.pack('<d', p.x)
    end
    if idle_after > need then need = idle_after end
    unknown, states[i] = unknown or blind, state
  end
  if asks then return need, unknown end
  dirty = false
  if gone then return redis.call('DEL', key) end
  states = count == 1 and states[1] or table.concat(states)
  local milliseconds
  need = need + keep
  if now + need + 1000000 > deadline * 1000000 then
    need = math.min(need, 9007199254740992)
    milliseconds = math.ceil((need + math.min(need, 86400000000)) / 1000) + 2000
    deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  local head
  if pause == 0 and version == 0 and generation == 0 then
    head = struct.pack('<dddI4I2', stamp, sequence, now, deadline, (30 + #states) % 65536)
  else
    local set = ''
    if version > 0 or generation > 0 then set = new_rules or request:sub(rules_from, rules_from + 34 * count - 1) end
    head = struct.pack('<dddI4I2ddI4I4I2', stamp + 1, sequence, now, deadline, (56 + #set + #states) % 65536,
      pause, owed, version, generation, #set) .. set
  end
  local value = head .. states
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  elseif #value == #blob then
    redis.call('SETRANGE', key, '0', value)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
  blob, first, last, elapsed = value, #head + 1, now, 0
end

-- What to do: calls, or else changes, in this order. Each is a letter, and its arguments. A cost has `width` numbers of four bytes.
--
--   T  takes permits: how many equal calls; how far ahead each may be booked; how long it waits at most; whether it is
--      new; the cost. Reports wait x 4 + verdict of each call: 0 booked, 1 later, 2 refused, 3 queue full. Waits are cut off at
--      2^49 - 1; 2^49 + the least wait if it is unpredictable; 2^50 if it never ends. Of several rules, the one that limits follows
--   S  settles: a cost that is charged whether it is ready or not
--   R  refunds: cost; the whole cost charged under the same sequence; how long ago it was due; the lower 32 bits of the
--      sequence; whether the whole cost is refunded
--   P  pauses for this long
--   E  ends a pause
--   N  sets a policy: its stamp and rules. Reports its rank
--   H  writes the key: what the process holds, or only to see whether that is permitted
--   X  deletes the key, after all other changes
--   Q  asks for the state: reports the available permits, the limit, when all permits are available again, how long a pause lasts
--      and how long the key lives at least, or -1 for what is not known
--   D  asks for each limit, for a cost: reports how many there are, the available permits of each, and when more than that and
--      at least the cost is available, or -1
local values, filled, before = {}, 0, sequence
local function read_cost()
  local numbers = {struct.unpack('<' .. ('I4'):rep(width), request, at)}
  at, cost, costs = numbers[width + 1], numbers[1], width > 1 and numbers or nil
  return numbers
end

if not changes then
  -- A call is refused: locks what has refused it, unless it is locked. Returns for how long, or zero.
  local lock = locks and function()
    local locked = 0
    for i = 1, count do
      local p = leaves[i]
      if p.kind == 'o' and p.x <= 0 and p.a > 0 then
        for j = i + 1, i + p.b do
          if leaves[j].blind or leaves[j].wait > 0.001 then p.x = p.a end
        end
        if p.x > 0 then locked, dirty = math.max(locked, p.x), true end
      end
    end
    return locked
  end

  -- A call that must wait for a later request blocks those behind it: what was charged is saved, and they are projected as if all
  -- calls before them had been charged. `real`: the rules as they are saved, where a refusal changes them.
  local blocked, real, calls, limit, patience, fresh = false, nil, nil, nil, nil, nil
  if renewed or not blob and keep > 0 then dirty = true end
  while at <= #request do
    calls, limit, patience, fresh, cost, at = struct.unpack('<I4ddBI4', request, at + 1)
    if width > 1 then
      at = at - 4
      read_cost()
    end
    for _ = 1, calls do
      local after, unknown, part, room = due(1, count)
      if real and fresh == 1 and after < math.huge and (after - 0.001 > patience or unknown and patience == 0) then
        -- The refusal of a call behind others locks by the state in the key, and not by the projection.
        local projected = leaves
        leaves = real
        due(1, count)
        lock()
        for i = 1, count do
          if real[i].kind == 'o' then projected[i].x = real[i].x end
        end
        leaves = projected
        after, unknown, part, room = due(1, count)
      end
      -- Due within a thousandth of a microsecond is due.
      local wait = after > 0 and math.ceil(after - 0.001) or 0
      local fails, is_charged, verdict = wait > patience or unknown and patience == 0, false, 2
      local never = after == math.huge
      if never then
        -- More than it ever has.
      elseif wait <= limit and not (blocked or unknown) then
        if room > 0 and wait > 0 and fresh == 1 then
          wait, verdict = room, 3
        else
          verdict, is_charged, dirty = 0, true, true
        end
      elseif fails then
        -- Only the refusal of a new call locks: a waiter that is late is not refused by the rule.
        if locks and fresh == 1 and not blocked then
          local locked = lock()
          if locked > after then wait = math.ceil(locked - 0.001) end
        end
      elseif blocked and patience == 0 then
        -- A call without patience does not wait for those ahead, though permits may have come back for all of them. That is
        -- no refusal by a rule.
        wait, unknown = 0, false
      elseif room > 0 and fresh == 1 then
        wait, unknown, verdict = room, false, 3
      else
        if not blocked then
          for i = 1, count do
            if leaves[i].mark then leaves[i].mark(patience) end
          end
          blocked = true
          if dirty then save() end
          from = first
          if locks then real = load() end
        end
        -- Behind a call whose wait is unpredictable nothing is projected.
        verdict, is_charged, opaque = 1, not opaque, unknown
      end
      if is_charged then
        latest = after > 0 and after or 0
        charge_all(latest)
        if not blocked then sequence = sequence + 1 end
      end
      wait = math.min(wait, 562949953421311) + (unknown and 562949953421312 or 0)
      filled = filled + 1
      values[filled] = (never and 1125899906842624 or wait) * 4 + verdict
      if count > 1 then
        filled = filled + 1
        values[filled] = part
      end
    end
  end
  leaves = real or leaves
else
  local function tell(value)
    filled = filled + 1
    values[filled] = value
  end

  -- How much comes back of `n` permits of a charge of `all`: no more than the lowest level since, and the levels since would have
  -- been lower by as much. If it is the last charge and all of it, the one before it is the last again.
  local function take_back(p, n, all, number)
    local function age(number) return (sequence - number) % 4294967296 end
    local lows, its, later, after = p.z, age(number), age(p.y), 0
    if its < later then return 0 end
    if its == later then
      if n < all then return n end
      p.y = (p.y - 1) % 4294967296
      if lows ~= '' then
        local low, since = struct.unpack('<dI4', lows)
        if age(since) == its then p.z = #lows > 12 and struct.pack('<dI4', low, p.y) .. lows:sub(13) or '' end
      end
      return n
    end
    while its > later and after < #lows do
      local low, since = struct.unpack('<dI4', lows, after + 1)
      n, later, after = math.min(n, low), age(since), after + 12
    end
    if its > later then return 0 end
    p.z = ''
    for place = #lows - 11, 1, -12 do
      local low, since = struct.unpack('<dI4', lows, place)
      p.z = note(p.z, place < after and low - n or low, p.a, since)
    end
    return n
  end

  -- Idle time goes into the store of a SmoothWarmingUp.
  local function store(p)
    if p.x <= -1 then p.x, p.y = 0, math.min(p.y - p.x, p.b) end
  end

  -- No earlier charge of a bucket comes back.
  local function forget(p)
    if p.kind == 't' or p.kind == 'l' then p.y, p.z = (sequence + 1) % 4294967296, '' end
  end

  -- A time as it is told; -1 if it is not known.
  local function tell_time(time, is_known)
    tell(is_known and math.ceil(math.min(math.max(time - 0.001, 0), 9007199254740991)) or -1)
  end

  -- Down to whole permits, without losing one to rounding errors.
  local function whole(permits)
    return math.min(math.floor(math.max(permits, 0) * (1 + 1e-14) + 1e-9), 4294967295)
  end

  -- How many permits a rule would grant now, and at most.
  local function free(p)
    local kind, x, y, a, b, c, d = p.kind, p.x, p.y, p.a, p.b, p.c, p.d
    if kind == 'b' then
      local store = b * a / 1000000
      return whole(math.min(-x, store)), whole(store)
    elseif kind == 'w' then
      local each = a * (5 + c) / (2000000 * (1 + c))
      return x > 0.001 and 0 or whole(math.min(y - x, b) * each), whole(b * each)
    elseif kind == 't' then
      return whole(math.min(-x - (d > 0 and past(0, d, 0) or 0) * a / 1000000, b)), b
    elseif kind == 'l' then
      return c == 1 and whole(b - math.max(x, 0)) or 0, c == 1 and b or 0
    elseif kind == 'f' then
      return math.max(a - (x + b > 0 and y or 0), 0), a
    end
    return p.free(), a
  end

  -- The same of several rules for each number of a cost: the least counts.
  local function available(first, final)
    local there, limits = {}, {}
    for i = 1, width do there[i], limits[i] = 4294967295, 4294967295 end
    for i = first, final do
      local p = leaves[i]
      if p.share > 0 then
        local now_free, at_most = free(p)
        there[p.share], limits[p.share] = math.min(there[p.share], now_free), math.min(limits[p.share], at_most)
      elseif p.kind == 'o' and p.x > 0 then
        for share = p.c, p.d do there[share] = 0 end
      end
    end
    return there, limits
  end

  -- In a pause nothing comes, and what is owed is due at its end at the earliest. Returns for how long something was owed.
  local function halt(duration, begins)
    local owes = 0
    for i = 1, count do
      local p = leaves[i]
      local kind, a = p.kind, p.a
      if kind == 'w' then
        store(p)
        owes = math.max(owes, p.x)
        p.x = math.max(p.x, duration)
      elseif kind == 'b' or kind == 't' or kind == 'l' then
        local least = kind == 'l' and p.c == 1 and p.b or 0
        local floor = duration * a / 1000000 + least
        owes = math.max(owes, (p.x - least) * 1000000 / a)
        p.x = math.max(p.x, floor)
        if begins and kind ~= 'b' then
          p.y, p.z = (sequence + 1) % 4294967296, note(p.z, p.x - floor, a, p.y)
        end
      end
    end
    return owes
  end

  -- Returns `n` permits of a charge to a rule.
  local function refund(p, n, all, ago, its_number)
    local kind, a, is_last = p.kind, p.a, its_number == sequence
    -- A refund gives no credit across a pause, even one that has ended: only the debt beyond its end comes back, and that only
    -- if nothing was charged since, where the key does not say how much that was.
    local is_paid = ago < 0 or pause + ago > 0 and pause ~= 0 and sequence - its_number > 1
    if kind == 'b' then
      -- Exact if there was no other charge since. Otherwise no more than time has not replenished already, and no more than
      -- the store holds; and nothing before the charge is due: others are booked behind it, and the next caller would be
      -- due together with the last of them; and nothing if a pause and later charges have paid for it.
      if not is_last then
        n = is_paid and 0 or math.max(math.min(n, all - ago * a / 1000000, p.b * a / 1000000), 0)
      end
      p.x = p.x - n
    elseif kind == 'w' then
      -- Exact if there was no other charge since: as if only the rest had been charged. The charge before that one is
      -- unknown then, and z is -1. Otherwise at the stable price, and for the rest as with SmoothBursty.
      if is_last and p.z >= 0 then
        p.x, p.y, p.z = p.x - p.z, p.w, -1
        if n < all then p.x, p.y, p.z, p.w = charge(kind, all - n, -ago, sequence, p.x, p.y, p.z, p.w, a, p.b, p.c, p.d) end
      elseif not is_paid then
        p.x = p.x - math.max(math.min(n * 1000000 / a, all * 1000000 / a - ago), 0)
      end
    elseif kind == 't' then
      -- What the store has no room for is cut off by the next charge.
      p.x = p.x - take_back(p, n, all, its_number)
    elseif kind == 'l' then
      -- A queue is empty when it grants, so nothing comes back behind a grant: later callers wait behind the charge. Time
      -- that comes back to an empty bucket is lost.
      local level = p.x
      p.x = level - take_back(p, n, all, its_number)
      if p.x < -a / 1000000 then p.x = math.min(level, 0) end
    elseif kind == 'f' then
      -- Exact within the window, which keeps its start; after it there is nothing to return. Only the lower bits of a
      -- sequence are known: if the charge is older than the window by half their range, it is another one.
      if its_number >= p.z and ago + p.x < 2147483648 then p.y = math.max(p.y - n, 0) end
    else
      p.refund(n, ago, its_number)
    end
  end

  -- Sets the parameters of a rule.
  local function set(p, a, b, c, d)
    local kind = p.kind
    if kind == 'b' then
      -- What is stored or owed keeps its time.
      p.x = math.max(p.x, -p.b * p.a / 1000000) * a / p.a
    elseif kind == 'w' then
      store(p)
      p.y = math.min(p.y, b)
    elseif kind == 't' then
      -- What was stored at the last step keeps its number, debt keeps its time. Where the steps change, the earlier one of the
      -- last steps counts.
      local since = math.max(d > 0 and past(0, d, 0) or 0, p.d > 0 and past(0, p.d, 0) or 0)
      local held = math.max(p.x + since * p.a / 1000000, -p.b)
      p.x = (held < 0 and math.max(held, -b) or held * a / p.a) - since * a / 1000000
    elseif kind == 'l' then
      -- What is queued keeps its time; a meter keeps its content. In a pause that is the content at its end, when a meter is full.
      if c == 0 and p.c == 0 then
        p.x = p.x * a / p.a
      elseif pause > 0 then
        p.x = math.max(p.x + pause * (a - p.a) / 1000000, pause * a / 1000000 + c * b)
      end
    elseif p.limit then
      p.limit(a, b, c)
    end
    -- Of windows, what was granted counts until the end of a new window with the old start. A lock that has begun keeps its end.
    p.a, p.b, p.c, p.d = a, b, c, d
    forget(p)
  end

  while at <= #request do
    local what
    what, at = struct.unpack('c1', request, at)
    if what == 'S' then
      read_cost()
      charge_all(0, true)
      sequence, dirty = sequence + 1, true
    elseif what == 'R' then
      local part, all = read_cost(), read_cost()
      local ago, its_number, is_all
      ago, its_number, is_all, at = struct.unpack('<dI4B', request, at)
      its_number = sequence - (sequence - its_number) % 4294967296
      -- If the key is lost, so is the charge.
      if blob then
        for i = 1, count do
          local p = leaves[i]
          local n = part[p.share] or 0
          if n > 0 then refund(p, n, all[p.share], ago, its_number) end
        end
        if pause ~= 0 then halt(pause) end
        -- The charge is undone: the one before it is the last now.
        if its_number == sequence and is_all == 1 then sequence = sequence - 1 end
        dirty = true
      end
    elseif what == 'P' then
      local duration
      duration, at = struct.unpack('<d', request, at)
      local owes = halt(duration, true)
      if pause <= 0 then owed = owes end
      if duration > pause then pause = duration end
      sequence, dirty = sequence + 1, true
    elseif what == 'E' then
      -- What was halted is due at the end of the pause. It becomes due now, or when the debt is paid.
      local early = pause - math.max(owed, 0)
      for i = 1, pause > 0 and early > 0 and count or 0 do
        local p = leaves[i]
        if p.kind == 'w' then p.x = p.x - early end
        if p.kind == 'b' or p.kind == 't' or p.kind == 'l' then p.x = p.x - early * p.a / 1000000 end
        -- What was found in the pause was found at its end.
        forget(p)
      end
      if pause > 0 then pause, sequence, dirty = -0.001, sequence + 1, true end
    elseif what == 'N' then
      local theirs, place
      theirs, place = struct.unpack('<d', request, at)
      new_rules, at = request:sub(place, place + 34 * count - 1), place + 34 * count
      generation = math.max(generation + 1, math.min(math.floor(now / 1000000), 4294967295))
      if not blob or theirs ~= stamp then
        for i = 1, count do
          local _, _, a, b, c, d = struct.unpack('<c1Bdddd', new_rules, 34 * i - 33)
          set(leaves[i], a, b, c, d)
        end
        stamp, sequence, pause = theirs, sequence + 1, math.max(pause, 0)
      end
      dirty = true
      tell(version)
      tell(generation)
    elseif what == 'H' then
      dirty = true
    elseif what == 'X' then
      gone, dirty = true, true
    elseif what == 'Q' then
      if dirty then save() end
      local there, limits = available(1, count)
      for i = 1, width do tell(pause > 0 and 0 or there[i]) end
      for i = 1, width do tell(limits[i]) end
      local need, unknown = save(true)
      tell_time(need, not unknown)
      tell_time(pause + 0.001, true)
      tell_time(deadline * 1000000 - now + 0.001, blob)
    else
      -- Of several rules with one cost each is a limit, otherwise they are one.
      local asked, limits = read_cost(), {}
      for i = 1, width == 1 and count or 0 do
        if leaves[i].share > 0 then limits[#limits + 1] = i end
      end
      tell(math.max(#limits, 1))
      for l = 1, math.max(#limits, 1) do
        -- More than what is there now. Nothing is granted while it is shut.
        local i, shut = limits[l], math.max(pause, 0)
        local there = available(i or 1, i or count)
        for j = 1, i or 0 do
          local p = leaves[j]
          if p.kind == 'i' or p.kind == 'o' and i <= j + p.b then shut = math.max(shut, p.x) end
        end
        for j = 1, width do
          if shut > 0.001 then there[j] = 0 end
          tell(there[j])
          if costs then costs[j] = math.max(costs[j], there[j] + 1) end
        end
        cost = math.max(asked[1], there[1] + 1)
        local after, unknown = due(i or 1, i or count)
        after = math.max(after, shut)
        tell_time(after, not unknown and after < math.huge)
      end
    end
    -- To look takes no key over, but what was set and lost comes back.
    if renewed and (generation > 0 or what ~= 'Q' and what ~= 'D') then dirty = true end
  end
end

if dirty then save() end
if ARGV[2] then return {number, before, unpack(values)} end
if filled == 1 then return struct.pack('<I4dd', number, before, values[1]) end
return struct.pack('<I4d' .. ('d'):rep(filled), number, before, unpack(values))
end)()
