-- One limit at a key: takes permits, in the order of the calls, and changes the key. For every rule, and for several together.
--
-- KEYS[1]  the key
-- ARGV[1]  the request, as one packed string: to unpack it costs the server a third of what as many arguments would
--
-- The request is a head, the rules, and what to do; each part is described where it is read. From a shell give the format and the
-- numbers, a word each, and the reply is a list. This takes a permit of 5/s with a store of a second, and may wait 0.25 s:
--
--   redis-cli --eval limit.lua KEY , '<I4ddB dI4I4BBBBBB BBdddd c1I4ddBI4' \
--     1 2 0 0  0 0 0 0 0 1 1 0 0  1 1  5 1000000 0 0   T 1 250000 250000 1 1
--
-- The reply is the number of the request, the sequence before it, and the numbers that each of the things to do reports.
-- All times are microseconds, and all times in the state are counted from now.
local BURSTY, WARMING, BUCKET, LEAKY, FIXED, SLIDING, IN_FLIGHT, LOCK_OUT, IN_ORDER = 1, 2, 3, 4, 5, 6, 7, 8, 9
local request = ARGV[2] and struct.pack(unpack(ARGV)) or ARGV[1]
local time = redis.call('TIME')
local key, now = KEYS[1], time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)

-- The usual call, for half of what it costs below: of one rule, at a key under the same policy, and granted, or refused alone. The
-- lines are those of the rules below, where they are explained. What does not end here begins again there: nothing has changed.
local number, stamp, keep, alone = struct.unpack('<I4ddB', request)
local past, note
if alone ~= BURSTY then
  -- How long before `at` the last step of a clock with this period was. A step within the next half microsecond counts as reached:
  -- the server's time is a number of 51 bits.
  past = function(at, period, offset)
    local rest = math.fmod(now + at + offset, period)
    return rest > period - 0.5 and rest - period or rest
  end

  -- How much of a charge of a bucket may still come back: the lowest levels since, as in src/policy/refund_levels.rs. A level is what is
  -- missing from a full store, in permits. `lows` has pairs, the latest first: a level, and the number of a charge (its lower 32 bits):
  -- of that charge and later ones no more than the level comes back, and nothing of charges before the last pair.
  --
  -- The next charge finds `level`, and `last` is the number of the one before it. Less than a nanosecond of permits is rounding.
  note = function(lows, level, rate, last)
    if level * 1000000000 < rate then return '' end
    if #lows == 48 then
      -- Nearly always, under load: the new level and the latest one would become one.
      local one, two, three, four = struct.unpack('<dxxxxdxxxxdxxxxd', lows)
      local ratio = level / one
      if ratio > 1 and ratio < one / two and ratio < two / three and ratio < three / four then return lows end
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
      local one, two, three, four, five = struct.unpack('<dxxxxdxxxxdxxxxdxxxxd', lows)
      local place, least = 1, one / two
      if two / three <= least then place, least = 13, two / three end
      if three / four <= least then place, least = 25, three / four end
      if four / five <= least then place = 37 end
      lows = lows:sub(1, place - 1) .. lows:sub(place + 12)
    end
    return lows
  end
end
if blob and alone > 0 then
  local its, sequence, last, deadline, x, y, z, w
  if alone == BURSTY and #blob == 36 then
    its, sequence, last, deadline, x = struct.unpack('<dddI4d', blob)
  elseif alone == WARMING and #blob == 60 then
    its, sequence, last, deadline, x, y, z, w = struct.unpack('<dddI4dddd', blob)
  elseif alone == BUCKET and #blob > 40 then
    its, sequence, last, deadline, x, y = struct.unpack('<dddI4dI4', blob)
    z = #blob > 41 and blob:sub(42) or ''
  elseif alone == FIXED and #blob == 52 then
    its, sequence, last, deadline, x, y, z = struct.unpack('<dddI4ddd', blob)
  end
  if its == stamp and now >= last then
    local a, b, c, d, calls, limit, patience, cost = struct.unpack('<ddddxI4ddxI4', request, 46)
    local passed, before, granted, wait, values, due = now - last, sequence, 0, 0, nil, nil
    x = x - (alone == BURSTY and passed * a / 1000000 or alone == BUCKET and passed * a / 1000000 or passed)
    while granted < calls do
      -- When it is ready.
      if alone == FIXED then
        due = cost > a and math.huge or y + cost <= a and x or x + b
      elseif alone == WARMING then
        due = cost > a * 4611686018.427387904 and math.huge or x
      elseif alone == BURSTY then
        due = cost > a * 4611686018.427387904 and math.huge or x * 1000000 / a
      else
        due = cost > b and math.huge or (x + cost) * 1000000 / a
        if d > 0 then
          local since = past(due, d, 0)
          if since > 0.5 then due = due - since + d end
        end
      end
      if due > 0 then
        wait = math.ceil(due - 0.001)
        if wait > limit then break end
      else
        wait, due = 0, 0
      end
      -- Its charge.
      if alone == BURSTY then
        local full = (due - b) * a / 1000000
        if x < full - a / 1000000 then x = full end
        x = x + cost
      elseif alone == WARMING then
        local ticket = x
        w = y
        if due - x >= 1 then x, y = due, math.min(y + due - x, b) end
        local steep = b * 4 / (5 + c)
        local flat = b - steep
        local from = math.max(y - flat, 0) / steep
        y = math.max(y - cost * 2000000 * (1 + c) / (5 + c) / a, 0)
        local to = math.max(y - flat, 0) / steep
        x = x + cost * 1000000 / a + b * (c - 1) / (c + 1) * (from * from - to * to)
        z = x - ticket
      elseif alone == BUCKET then
        local missing = x + b - (due - (d > 0 and past(due, d, 0) or 0)) * a / 1000000
        z = note(z, missing, a, y)
        if missing < -a / 1000000 then x = x - missing end
        x, y = x + cost, (sequence + 1) % 4294967296
      else
        if due > x + b - 0.001 then
          x, y, z = c < 0 and due or due - math.max(past(due, b, c), 0), 0, sequence + 1
        elseif sequence + 1 < z then
          z = sequence + 1
        end
        y = math.min(y + cost, 1099511627775)
      end
      sequence, granted = sequence + 1, granted + 1
      if calls > 1 then
        values = values or {}
        values[granted] = wait * 4
      end
    end
    if granted == calls and calls > 0 then
      -- When the rule is as new, and its state.
      local state
      if alone == BURSTY then
        due, state = x * 1000000 / a + b, struct.pack('<dddI4d', stamp, sequence, now, deadline, x)
      elseif alone == WARMING then
        due, state = x + b - y, struct.pack('<dddI4dddd', stamp, sequence, now, deadline, x, y, z, w)
      elseif alone == BUCKET then
        due = (x + b) * 1000000 / a + d
        state = struct.pack('<dddI4dI4B', stamp, sequence, now, deadline, x, y, #z / 12) .. z
      else
        due, state = x + b, struct.pack('<dddI4ddd', stamp, sequence, now, deadline, x, y, z)
      end
      if due < 0 then due = 0 end
      if now + due + keep + 1000000 <= deadline * 1000000 then
        if #state == #blob then
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
local process, version, generation, idle, sets, width, count, steps, logs, at = struct.unpack('<dI4I4BBBBBB', request, 22)

-- The key: its stamp, plus one if it has a second head; the number of its last charge, counted from the microsecond in which it
-- began; a second before which it does not expire; when the state was true; its length; the second head; the state of each rule.
-- The second head, after a pause or with a rank: the rest of the pause, after its end how long ago that was, as a negative
-- number; how long what was owed before it takes; the rank; the rules, if there is a rank.
local its, sequence, last, deadline, from = stamp, now, now, 0, 1
local pause, owed, rules, renewed = 0, 0, nil, false
if blob then
  its = nil
  if #blob > 35 then its, sequence, last, deadline, from = struct.unpack('<dddI4', blob) end
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

-- Functions that few rules need: defining them costs as much as a decision.
local take_back, store, warm, sliding_window, in_flight
if steps == 1 then
  -- How much comes back of `n` permits of a charge of `all`: no more than the lowest level since, and the levels since would have
  -- been lower by as much. If it is the last charge and all of it, the one before it is the last again.
  take_back = function(p, n, all, number)
    local function age(number) return (sequence - number) % 4294967296 end
    local lows, its, later, after = p.lows, age(number), age(p.last), 0
    if its < later then return 0 end
    if its == later then
      if n < all then return n end
      p.last = (p.last - 1) % 4294967296
      if lows ~= '' then
        local low, since = struct.unpack('<dI4', lows)
        if age(since) == its then p.lows = #lows > 12 and struct.pack('<dI4', low, p.last) .. lows:sub(13) or '' end
      end
      return n
    end
    while its > later and after < #lows do
      local low, since = struct.unpack('<dI4', lows, after + 1)
      n, later, after = math.min(n, low), age(since), after + 12
    end
    if its > later then return 0 end
    p.lows = ''
    for at = #lows - 11, 1, -12 do
      local low, since = struct.unpack('<dI4', lows, at)
      p.lows = note(p.lows, at < after and low - n or low, p.rate, since)
    end
    return n
  end

  -- Idle time goes into the store of a SmoothWarmingUp; less than a microsecond stays in the ticket: waits are rounded up to
  -- whole microseconds.
  store = function(p, at)
    local spare = at - p.debt
    if spare >= 1 then p.stored, p.debt = math.min(p.stored + spare, p.warm_up), at end
  end

  -- What the ramp adds to a charge: the trapezoid's area above the stable interval, from here to what is left.
  warm = function(p, at, n)
    local ticket, rate, warm_up, cold = p.debt, p.rate, p.warm_up, p.cold
    p.before = p.stored
    store(p, at)
    local steep = warm_up * 4 / (5 + cold)
    local flat = warm_up - steep
    local from = math.max(p.stored - flat, 0) / steep
    p.stored = math.max(p.stored - n * 2000000 * (1 + cold) / (5 + cold) / rate, 0)
    local to = math.max(p.stored - flat, 0) / steep
    p.debt = p.debt + n * 1000000 / rate + warm_up * (cold - 1) / (cold + 1) * (from * from - to * to)
    p.moved = p.debt - ticket
  end
end

if logs == 1 then
  -- Never more than `most` in `window`. The state is a log: for each part of a window with a grant the time of its last grant,
  -- the permits, and the lower 32 bits of the number of its first charge; the oldest first. Times are counted from the log's base,
  -- which was `age` ago, so that nothing is rewritten as time passes. `granted` is the sum of all permits, `newest` the time of
  -- the last grant. A `part` of a nanosecond makes it exact.
  --
  -- A log may be long: no call copies it, and `save` puts it together once. An entry has a place, 16 to the next: from `first`
  -- to `stop` in the bytes of `log`, from there to `behind` in `added`, three numbers each. `looked` is the place up to which
  -- `ready` has looked, and `sum` the permits before it, so that the next call goes on from there. `left` has the permits that
  -- refunds have left in entries of `log`.
  sliding_window = function(p)
    local most, window, part = p.most, p.window, p.part
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

    function p.save()
      local places, pieces, piece = {}, {}, first
      for at in pairs(left) do
        if at >= first and at <= stop then places[#places + 1] = at end
      end
      table.sort(places)
      for _, at in ipairs(places) do
        pieces[#pieces + 1] = log:sub(piece, at + 7) .. struct.pack('<I4', left[at])
        piece = at + 12
      end
      pieces[#pieces + 1] = log:sub(piece, stop)
      for at = math.max(first, stop + 1), behind - 1, 16 do
        pieces[#pieces + 1] = struct.pack('<dI4I4', entry(at))
      end
      local need = first < behind and ended((entry(behind - 16))) or 0
      local entries = table.concat(pieces)
      return need, struct.pack('<dddI4', age, granted, newest, #entries) .. entries
    end

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
  in_flight = function(p)
    local most, told, lasts, listens = p.most, p.told, p.lasts, p.listens
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
    function p.save()
      local own = held == 0 and waits <= age and '' or struct.pack('<dI4dddI4', process, held, age + lasts, since, waits, wants)
      local all = own .. table.concat(entries)
      return held > 0 and lasts or 0, struct.pack('<dI4', age, #all) .. all, held + others > 0
    end

    -- The process reports what it holds and what it does not hold any more, so there is nothing to refund.
    function p.refund() end

    function p.free()
      return math.max(most - held - others, 0)
    end

    function p.limit(most_now)
      most = most_now
    end
  end
end

-- The rules: the kind, the number of the cost that counts there, or zero, and its parameters. Each passes from `last` to now. A
-- new policy is set after the state has passed to now under the one in the key.
local locks, rules_from, first = false, at, from
at = at + 34 * count
local function load()
  local leaves, source, place = {}, request, rules_from
  if sets == 1 and rules then source, place = rules, 1 end
  for i = 1, count do
    local kind, share, a, b, c, d
    kind, share, a, b, c, d, place = struct.unpack('<BBdddd', source, place)
    local p
    if kind == BURSTY then
      -- SmoothBursty: a request waits for what was taken before it. `level` is the debt in permits; below zero it is the store,
      -- which holds what `burst` yields at `rate` a second.
      p = {kind = kind, share = share, rate = a, burst = b, level = 0}
      if blob then
        p.level, from = struct.unpack('<d', blob, from)
        p.level = p.level - elapsed * a / 1000000
      elseif idle == 1 then
        p.level = -b * a / 1000000
      end
    elseif kind == WARMING then
      -- SmoothWarmingUp: `debt` is the time until the next free ticket, `stored` the idle time in store: zero when warm, all of
      -- `warm_up` when cold. `moved` is how far the last charge moved the ticket, `before` the store before it.
      p = {kind = kind, share = share, rate = a, warm_up = b, cold = c, debt = 0, stored = b, moved = 0, before = b}
      if blob then
        p.debt, p.stored, p.moved, p.before, from = struct.unpack('<dddd', blob, from)
        p.debt = p.debt - elapsed
      end
    elseif kind == BUCKET or kind == LEAKY then
      -- TokenBucket, Gcra: all permits of a request must be there. `level` is minus the tokens, as if they came continuously;
      -- with a `period` they count from the next step on. Steps are counted from the epoch. LeakyBucket: `level` is the
      -- content; below zero it has been empty for a time. A queue serves when the content before has leaked, a `meter` what fits.
      p = {kind = kind, share = share, rate = a, capacity = b, level = 0, lows = '', last = sequence % 4294967296}
      if kind == BUCKET then p.initial, p.period = c, d else p.meter = c == 1 end
      if blob then
        local levels
        p.level, p.last, levels, from = struct.unpack('<dI4B', blob, from)
        p.level = p.level - elapsed * a / 1000000
        p.lows, from = blob:sub(from, from + 12 * levels - 1), from + 12 * levels
      elseif kind == BUCKET then
        p.level = -math.min(idle == 1 and b or c, b) - (d > 0 and past(0, d, 0) or 0) * a / 1000000
      end
    elseif kind == FIXED then
      -- FixedWindow: `granted` in the window that begins at `start`; `began` is the number of its first charge. `grid` is how far
      -- into a window the epoch was, -1 for windows that begin with their first charge. A new one began long ago: otherwise a
      -- longer window that is set later would have begun already.
      p = {kind = kind, share = share, most = a, window = b, grid = c, start = -4503599627370496, granted = 0, began = 0}
      if blob then
        p.start, p.granted, p.began, from = struct.unpack('<ddd', blob, from)
        p.start = p.start - elapsed
        -- If the clock has gone back, the count is that of the window in which it is now.
        if now < last and p.start + b > 0 then
          p.start = math.max(p.start, 0)
          if c >= 0 then p.start = p.start - math.max(past(p.start, b, c), 0) end
        end
      end
    elseif kind == SLIDING then
      -- SlidingWindowLog, SlidingWindowCounter.
      p = {kind = kind, share = share, most = a, window = b, part = c}
      sliding_window(p)
    elseif kind == IN_FLIGHT then
      p = {kind = kind, share = share, most = a, told = b, lasts = c, listens = d}
      in_flight(p)
    elseif kind == LOCK_OUT then
      -- LockOut: a refusal by one of the next `span` rules locks these for `duration`; `locked` is the rest of that. `first` and
      -- `final`: the numbers of the cost that count there.
      p = {kind = kind, share = 0, duration = a, span = b, first = c, final = d, locked = 0}
      locks = true
      if blob then
        p.locked, from = struct.unpack('<d', blob, from)
        p.locked = p.locked - elapsed
      end
    else
      -- Of several rules: when the last booking is due. A rule that did not limit it must not let a later call pass it.
      p = {kind = kind, share = 0, since = 0}
      if blob then
        p.since, from = struct.unpack('<d', blob, from)
        p.since = p.since - elapsed
      end
    end
    if renewed and p.lows then p.lows, p.last = '', sequence % 4294967296 end
    leaves[i] = p
  end
  return leaves
end
local leaves, real = load(), nil

-- What to do, in this order: a letter, and its arguments. A cost has `width` numbers of four bytes.
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
--   Q  asks for the state, as the last: reports the available permits, the limit, when all permits are available again, how long
--      a pause lasts and how long the key lives at least, or -1 for what is not known
--   D  asks for each limit, for a cost: reports how many there are, the available permits of each, and when more than that and
--      at least the cost is available, or -1
--
-- A call that must wait for a later request blocks those behind it: what was charged is saved, and they are projected as if all
-- calls before them had been charged.
local values, filled, before = {}, 0, sequence
local what, left, limit, patience, fresh, cost, costs = '', 0, 0, 0, 0, 0, nil
local available, asked, limits, asks, new_rules, gone
-- Whether a call must wait for a later request; whether for how long is unknown; and when the call before is due: a window of a
-- grid that was changed may begin earlier.
local blocked, opaque, latest = false, false, 0
-- While the calls behind it are projected: whether the one at hand was judged by the state in the key.
local projected, judged

-- A call is refused: locks what has refused it, unless it is locked. Returns for how long, or zero.
local function lock(leaves)
  local locked = 0
  for i = 1, count do
    local p = leaves[i]
    if p.kind == LOCK_OUT and p.locked <= 0 and p.duration > 0 then
      for j = i + 1, i + p.span do
        if leaves[j].blind or leaves[j].wait > 0.001 then p.locked = p.duration end
      end
      if p.locked > 0 then locked, dirty = math.max(locked, p.locked), true end
    end
  end
  return locked
end
repeat
  local halts = false
  while left > 0 or at <= #request do
    if left == 0 then
      what, at = struct.unpack('c1', request, at)
      if what == 'T' then
        left, limit, patience, fresh, cost, at = struct.unpack('<I4ddBI4', request, at)
        if width > 1 then
          costs = {struct.unpack('<' .. ('I4'):rep(width), request, at - 4)}
          at = costs[width + 1]
        end
        if renewed or not blob and keep > 0 then dirty = true end
      else
        -- Changes are rare, so these are defined only here.
        local function read_cost()
          local numbers = {struct.unpack('<' .. ('I4'):rep(width), request, at)}
          at = numbers[width + 1]
          return numbers
        end

        local function tell(value)
          filled = filled + 1
          values[filled] = value
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
          local kind, rate = p.kind, p.rate
          if kind == BURSTY then
            local store = p.burst * rate / 1000000
            return whole(math.min(-p.level, store)), whole(store)
          elseif kind == WARMING then
            local each = rate * (5 + p.cold) / (2000000 * (1 + p.cold))
            return p.debt > 0.001 and 0 or whole(math.min(p.stored - p.debt, p.warm_up) * each), whole(p.warm_up * each)
          elseif kind == BUCKET then
            local since = p.period > 0 and past(0, p.period, 0) or 0
            return whole(math.min(-p.level - since * rate / 1000000, p.capacity)), p.capacity
          elseif kind == LEAKY then
            if not p.meter then return 0, 0 end
            return whole(p.capacity - math.max(p.level, 0)), p.capacity
          elseif kind == FIXED then
            return math.max(p.most - (p.start + p.window > 0 and p.granted or 0), 0), p.most
          end
          return p.free(), p.most
        end

        -- The same of several rules for each number of a cost: the least counts.
        available = function(first, final)
          local there, limits = {}, {}
          for i = 1, width do there[i], limits[i] = 4294967295, 4294967295 end
          for i = first, final do
            local p = leaves[i]
            if p.share > 0 then
              local now_free, at_most = free(p)
              there[p.share] = math.min(there[p.share], now_free)
              limits[p.share] = math.min(limits[p.share], at_most)
            elseif p.kind == LOCK_OUT and p.locked > 0 then
              for share = p.first, p.final do there[share] = 0 end
            end
          end
          return there, limits
        end

        -- In a pause nothing comes, and what is owed is due at its end at the earliest. Returns for how long something was owed.
        local function halt(duration, begins)
          local owes = 0
          for i = 1, count do
            local p = leaves[i]
            local kind, rate = p.kind, p.rate
            if kind == BURSTY then
              owes = math.max(owes, p.level * 1000000 / rate)
              p.level = math.max(p.level, duration * rate / 1000000)
            elseif kind == WARMING then
              store(p, 0)
              owes = math.max(owes, p.debt)
              p.debt = math.max(p.debt, duration)
            elseif kind == BUCKET or kind == LEAKY then
              local least = p.meter and p.capacity or 0
              local floor = duration * rate / 1000000 + least
              owes = math.max(owes, (p.level - least) * 1000000 / rate)
              p.level = math.max(p.level, floor)
              if begins then p.lows, p.last = note(p.lows, p.level - floor, rate, p.last), (sequence + 1) % 4294967296 end
            end
          end
          return owes
        end

        if what == 'R' then
          local part, all = read_cost(), read_cost()
          local ago, charge, is_all
          ago, charge, is_all, at = struct.unpack('<dI4B', request, at)
          charge = sequence - (sequence - charge) % 4294967296
          local is_last = charge == sequence
          -- A refund gives no credit across a pause, even one that has ended: only the debt beyond its end comes back, and that only
          -- if nothing was charged since, where the key does not say how much that was.
          local is_paid = pause + ago > 0 and pause ~= 0 and sequence - charge > 1
          -- If the key is lost, so is the charge.
          for i = 1, blob and count or 0 do
            local p = leaves[i]
            local kind, rate, n, whole = p.kind, p.rate, part[p.share] or 0, all[p.share]
            if n == 0 then
              -- Nothing was charged there, or nothing comes back.
            elseif kind == BURSTY then
              -- Exact if there was no other charge since. Otherwise no more than time has not replenished already, and no more than
              -- the store holds; and nothing before the charge is due: others are booked behind it, and the next caller would be
              -- due together with the last of them; and nothing if a pause and later charges have paid for it.
              if not is_last then
                local left = math.min(whole - ago * rate / 1000000, p.burst * rate / 1000000)
                n = (ago < 0 or is_paid) and 0 or math.max(math.min(n, left), 0)
              end
              p.level = p.level - n
            elseif kind == WARMING then
              -- Exact if there was no other charge since: as if only the rest had been charged. The charge before that one is
              -- unknown then, and `moved` is -1. Otherwise at the stable price, and for the rest as with SmoothBursty.
              if is_last and p.moved >= 0 then
                p.debt, p.stored, p.moved = p.debt - p.moved, p.before, -1
                if n < whole then warm(p, -ago, whole - n) end
              elseif ago >= 0 and not is_paid then
                p.debt = p.debt - math.max(math.min(n * 1000000 / rate, whole * 1000000 / rate - ago), 0)
              end
            elseif kind == BUCKET then
              -- What the store has no room for is cut off by the next charge.
              p.level = p.level - take_back(p, n, whole, charge)
            elseif kind == LEAKY then
              -- A queue is empty when it grants, so nothing comes back behind a grant: later callers wait behind the charge. Time
              -- that comes back to an empty bucket is lost.
              local level = p.level
              p.level = level - take_back(p, n, whole, charge)
              if p.level < -rate / 1000000 then p.level = math.min(level, 0) end
            elseif kind == FIXED then
              -- Exact within the window, which keeps its start; after it there is nothing to return. Only the lower bits of a
              -- sequence are known: if the charge is older than the window by half their range, it is another one.
              if charge >= p.began and ago + p.start < 2147483648 then p.granted = math.max(p.granted - n, 0) end
            else
              p.refund(n, ago, charge)
            end
          end
          if blob then
            if pause ~= 0 then halt(pause) end
            -- The charge is undone: the one before it is the last now.
            if is_last and is_all == 1 then sequence = sequence - 1 end
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
            if p.level then p.level = p.level - early * p.rate / 1000000 end
            if p.debt then p.debt = p.debt - early end
            -- What was found in the pause was found at its end.
            if p.lows then p.lows, p.last = '', (sequence + 1) % 4294967296 end
          end
          if pause > 0 then pause, sequence, dirty = -0.001, sequence + 1, true end
        elseif what == 'N' then
          local theirs, place
          theirs, at = struct.unpack('<d', request, at)
          new_rules, place, at = request:sub(at, at + 34 * count - 1), at, at + 34 * count
          generation = math.max(generation + 1, math.min(math.floor(now / 1000000), 4294967295))
          if not blob or theirs ~= stamp then
            for i = 1, count do
              local p, kind, share, a, b, c, d = leaves[i], nil, nil, nil, nil, nil, nil
              kind, share, a, b, c, d, place = struct.unpack('<BBdddd', request, place)
              if kind == BURSTY then
                -- What is stored or owed keeps its time.
                p.level = math.max(p.level, -p.burst * p.rate / 1000000) * a / p.rate
                p.rate, p.burst = a, b
              elseif kind == WARMING then
                store(p, 0)
                p.stored = math.min(p.stored, b)
                p.rate, p.warm_up, p.cold = a, b, c
              elseif kind == BUCKET then
                -- What was stored at the last step keeps its number, debt keeps its time. Where the steps change, the earlier
                -- one of the last steps counts.
                local since = math.max(d > 0 and past(0, d, 0) or 0, p.period > 0 and past(0, p.period, 0) or 0)
                local held = math.max(p.level + since * p.rate / 1000000, -p.capacity)
                held = held < 0 and math.max(held, -b) or held * a / p.rate
                p.level = held - since * a / 1000000
                p.rate, p.capacity, p.initial, p.period = a, b, c, d
              elseif kind == LEAKY then
                -- What is queued keeps its time; a meter keeps its content. In a pause that is the content at its end, when a
                -- meter is full.
                local was_meter, old_rate = p.meter, p.rate
                p.rate, p.capacity, p.meter = a, b, c == 1
                if not (p.meter or was_meter) then
                  p.level = p.level * a / old_rate
                elseif pause > 0 then
                  local floor = pause * a / 1000000 + (p.meter and b or 0)
                  p.level = math.max(p.level + pause * (a - old_rate) / 1000000, floor)
                end
              elseif kind == FIXED then
                -- What was granted counts until the end of a new window with the old start.
                p.most, p.window, p.grid = a, b, c
              elseif kind == SLIDING then
                -- What was granted in the last window counts on.
                p.most = a
                p.limit(a, b, c)
              elseif kind == IN_FLIGHT then
                p.most = a
                p.limit(a)
              elseif kind == LOCK_OUT then
                -- A lock that has begun keeps its end.
                p.duration = a
              end
              if p.lows then p.lows, p.last = '', (sequence + 1) % 4294967296 end
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
          local there, limits = available(1, count)
          for i = 1, width do tell(pause > 0 and 0 or there[i]) end
          for i = 1, width do tell(limits[i]) end
          -- The rest is known when all rules have been asked below.
          asks = tell_time
        else
          -- To settle, or each limit: of several rules with one cost each is a limit, otherwise they are one.
          asked = read_cost()
          cost, costs, left = asked[1], width > 1 and asked or nil, 1
          if what == 'D' then
            limits = {}
            for i = 1, width == 1 and count or 0 do if leaves[i].share > 0 then limits[#limits + 1] = i end end
            left = math.max(#limits, 1)
            tell(left)
          end
        end
        -- To look takes no key over, but what was set and lost comes back.
        if renewed and (generation > 0 or what ~= 'Q' and what ~= 'D') then dirty = true end
      end
    end
    if left > 0 then
      local first, final, shut, there = 1, count, 0, nil
      if what == 'D' then
        -- More than what is there now. Nothing is granted while it is shut.
        local i = limits[#limits - left + 1]
        shut = math.max(pause, 0)
        there = available(i or 1, i or count)
        if i then
          first, final = i, i
          for j = 1, i do
            local p = leaves[j]
            if p.kind == IN_ORDER then shut = math.max(shut, p.since) end
            if p.kind == LOCK_OUT and i <= j + p.span then shut = math.max(shut, p.locked) end
          end
        end
        if shut > 0.001 then for j = 1, width do there[j] = 0 end end
        cost = math.max(there[1] + 1, asked[1])
        if costs then
          costs = {}
          for j = 1, width do costs[j] = math.max(there[j] + 1, asked[j]) end
        end
      end

      -- When all rules are ready, and the one that is last, as it limits; whether that is unpredictable, which counts as later than
      -- all others; and when a bucket has room for a caller that waits.
      local after, unknown, part, longest, full = latest, false, 0, 0.001, 0
      for i = first, final do
        local p, n, ready, blind = leaves[i], cost, 0, false
        if costs then n = costs[p.share] or 1 end
        local kind, rate = p.kind, p.rate
        if n == 0 and count > 1 then
          -- It costs nothing there.
        elseif kind == BURSTY then
          -- No request takes longer than 2^62 ns.
          ready = n > rate * 4611686018.427387904 and math.huge or p.level * 1000000 / rate
        elseif kind == WARMING then
          ready = n > rate * 4611686018.427387904 and math.huge or p.debt
        elseif kind == BUCKET then
          ready = (p.level + n) * 1000000 / rate
          local since = p.period > 0 and past(ready, p.period, 0) or 0
          if since > 0.5 then ready = ready - since + p.period end
          if n > p.capacity then ready = math.huge end
        elseif kind == LEAKY then
          -- Nothing leaks in a pause, but what a pause holds back is no content.
          if p.meter then
            ready = (p.level + n - p.capacity) * 1000000 / rate
          else
            ready = p.level * 1000000 / rate
            local held = math.max(pause, 0)
            local over = (math.max(p.level - held * rate / 1000000, 0) + n - p.capacity) * 1000000 / rate
            if over > 0.001 then full = math.max(full, math.ceil(held + over)) end
          end
          if n > p.capacity then ready = math.huge end
        elseif kind == FIXED then
          ready = n > p.most and math.huge or p.granted + n <= p.most and p.start or p.start + p.window
        elseif kind == IN_ORDER then
          if p.since > after then after = p.since end
        elseif kind == LOCK_OUT then
          if costs then
            n = 0
            for share = p.first, p.final do n = n + costs[share] end
          end
          if n > 0 then ready = p.locked end
        else
          ready, blind = p.ready(n)
        end
        if ready == math.huge then
          after, unknown, part = ready, false, i
          break
        end
        if ready > after then after = ready end
        if blind and not unknown or ready > longest and (blind or not unknown) then
          part, longest, unknown = i, math.max(ready, 0.001), blind or unknown
        end
        if locks then p.wait, p.blind = ready, blind end
      end
      unknown = unknown or opaque
      if pause > after then after, part = pause, 0 end
      -- Due within a thousandth of a microsecond is due.
      local wait = after > 0 and math.ceil(after - 0.001) or 0

      local value, charges
      local fails = wait > patience or unknown and patience == 0
      if leaves == real then
        -- The refusal of a call behind others locks by the state in the key, and not by the projection.
        lock(leaves)
        for i = 1, count do projected[i].locked = leaves[i].locked end
        leaves, judged = projected, true
      elseif locks and fails and blocked and fresh == 1 and not judged and what == 'T' and after < math.huge then
        projected, leaves = leaves, real
      elseif what == 'S' then
        after, charges, dirty = 0, true, true
      elseif what == 'D' then
        after = math.max(after, shut)
        for j = 1, width do values[filled + j] = there[j] end
        filled = filled + width + 1
        local is_known = not unknown and after < math.huge
        values[filled] = is_known and math.ceil(math.min(math.max(after - 0.001, 0), 9007199254740991)) or -1
      elseif after == math.huge then
        value = 4503599627370498
      elseif wait <= limit and not (blocked or unknown) then
        if full > 0 and wait > 0 and fresh == 1 then
          value = full * 4 + 3
        else
          value, charges, dirty = wait * 4, true, true
        end
      elseif fails then
        -- Only the refusal of a new call locks: a waiter that is late is not refused by the rule.
        if locks and fresh == 1 and not blocked then
          local locked = lock(leaves)
          if locked > after then after, wait = locked, math.ceil(locked - 0.001) end
        end
        if wait > 562949953421311 then wait = 562949953421311 end
        value = (unknown and wait + 562949953421312 or wait) * 4 + 2
      elseif blocked and patience == 0 then
        -- A call without patience does not wait for those ahead, though permits may have come back for all of them. That is
        -- no refusal by a rule.
        value = 2
      elseif full > 0 and fresh == 1 then
        value = full * 4 + 3
      elseif not blocked then
        for i = 1, logs == 1 and count or 0 do if leaves[i].mark then leaves[i].mark(patience) end end
        blocked, halts = true, true
        break
      else
        if wait > 562949953421311 then wait = 562949953421311 end
        value = (unknown and wait + 562949953421312 or wait) * 4 + 1
        -- Behind a call whose wait is unpredictable nothing is projected.
        charges, opaque = not opaque, unknown
      end

      if charges then
        local due = after > 0 and after or 0
        if value then latest = due end
        for i = 1, count do
          local p, n = leaves[i], cost
          if costs then n = costs[p.share] or 1 end
          local kind, rate = p.kind, p.rate
          if n == 0 and count > 1 then
            -- It costs nothing there.
          elseif kind == BURSTY then
            -- A level within a microsecond of a full store stays as it is: waits are rounded up to whole microseconds, and with
            -- a burst of zero each grant would lose the difference.
            local full = (due - p.burst) * rate / 1000000
            if p.level < full - rate / 1000000 then p.level = full end
            p.level = p.level + n
          elseif kind == WARMING then
            warm(p, due, n)
          elseif kind == BUCKET or kind == LEAKY then
            local since = p.period and p.period > 0 and past(due, p.period, 0) or 0
            local missing = p.level + (p.initial and p.capacity or 0) - (due - since) * rate / 1000000
            p.lows, p.last = note(p.lows, missing, rate, p.last), (sequence + 1) % 4294967296
            if missing < -rate / 1000000 then p.level = p.level - missing end
            p.level = p.level + n
          elseif kind == FIXED then
            -- A number from before the window is used again if all later charges were refunded. What is settled is not bounded by
            -- the limit, and the key has 40 bits for it.
            if due > p.start + p.window - 0.001 then
              p.start = p.grid < 0 and due or due - math.max(past(due, p.window, p.grid), 0)
              p.granted, p.began = 0, sequence + 1
            elseif sequence + 1 < p.began then
              p.began = sequence + 1
            end
            p.granted = math.min(p.granted + n, 1099511627775)
          elseif kind == IN_ORDER then
            if due > p.since then p.since = due end
          elseif kind == SLIDING or kind == IN_FLIGHT and what ~= 'S' then
            -- A process has already reported the places that are settled.
            p.charge(due, n)
          end
        end
        if not blocked then sequence = sequence + 1 end
      end
      if value then
        filled = filled + 1
        values[filled] = value
        if count > 1 then
          filled = filled + 1
          values[filled] = part
        end
      end
      if value or what ~= 'T' then left, judged = left - 1, false end
    end
  end
  if real then leaves = real end
  if dirty or asks then
    -- When each rule is as new, and its state.
    local need, unknown, states = 0, false, nil
    for i = 1, count do
      local p = leaves[i]
      local kind, state, idle_after, blind = p.kind, nil, nil, false
      if kind == BURSTY then
        idle_after, state = p.level * 1000000 / p.rate + p.burst, struct.pack('<d', p.level)
      elseif kind == WARMING then
        idle_after, state = p.debt + p.warm_up - p.stored, struct.pack('<dddd', p.debt, p.stored, p.moved, p.before)
      elseif kind == BUCKET or kind == LEAKY then
        idle_after = (p.level + (p.initial and p.capacity or 0)) * 1000000 / p.rate
        local since = p.period and p.period > 0 and past(idle_after, p.period, 0) or 0
        if since > 0.5 then idle_after = idle_after - since + p.period end
        state = struct.pack('<dI4B', p.level, p.last, #p.lows / 12) .. p.lows
      elseif kind == FIXED then
        idle_after, state = p.start + p.window, struct.pack('<ddd', p.start, p.granted, p.began)
      elseif kind == LOCK_OUT then
        idle_after, state = p.locked, struct.pack('<d', p.locked)
      elseif kind == IN_ORDER then
        idle_after, state = p.since, struct.pack('<d', p.since)
      else
        idle_after, state, blind = p.save()
      end
      if idle_after > need then need = idle_after end
      unknown, states = unknown or blind, states and states .. state or state
    end
    if pause > need then need = pause end
    if asks then
      asks(need, not unknown)
      asks(pause + 0.001, true)
      asks(deadline * 1000000 - now + 0.001, blob)
    end
    if gone then
      redis.call('DEL', key)
    elseif dirty then
      -- One write carries the value and its expiry. The expiry is set only when it has become too short, and then to twice the time
      -- needed, but at most a day more.
      local head, milliseconds
      need = need + keep
      if now + need + 1000000 > deadline * 1000000 then
        need = math.min(need, 9007199254740992)
        milliseconds = math.ceil((need + math.min(need, 86400000000)) / 1000) + 2000
        deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
      end
      if pause == 0 and version == 0 and generation == 0 then
        head = struct.pack('<dddI4', stamp, sequence, now, deadline)
      else
        local set = ''
        if version > 0 or generation > 0 then set = new_rules or request:sub(rules_from, rules_from + 34 * count - 1) end
        head = struct.pack('<dddI4ddI4I4I2', stamp + 1, sequence, now, deadline, pause, owed, version, generation, #set) .. set
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
    dirty = false
  end
  if halts and locks then
    from = first
    real = load()
  end
until not halts
if ARGV[2] then return {number, before, unpack(values)} end
if filled == 1 then return struct.pack('<I4dd', number, before, values[1]) end
return struct.pack('<I4d' .. ('d'):rep(filled), number, before, unpack(values))
end)()
