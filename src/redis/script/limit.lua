-- One limit at a key: takes permits, in the order of the calls, and changes the key. For every rule, and for several together.
-- KEYS[1] is the key, and ARGV[1] the request, one packed string: a head, what to do, parameters of rules, and a tail, each described
-- where it is read. The reply is the number of the request, the sequence before it (without, if one call is refused), and all reports.
-- From a shell, in this folder, give the format and the numbers; the reply is a list. This takes a permit of 5/s, and asks for the state:
--
--   redis-cli --eval limit.lua KEY , '<ddc1 c1ddI4BI2x dddd c1B ddI4I4BBBB' 1 2 -  T 250000 250000 1 1 1  5 1000000 0 0  b 1  0 0 0 0 0 0 1 1
--   redis-cli --eval limit.lua KEY , '<ddc1 c1x dddd c1B ddI4I4BBBB' 1 2 -  Q  5 1000000 0 0  b 1  0 0 0 0 0 0 1 1
-- All times are microseconds, and those in the state are counted from when it was written. What is stored or owed is a time, too:
-- that in which it is earned. The kinds of rules: `a` to `d` are the parameters, `x` to `w` is the state.
--   b  SmoothBursty. a: the rate, b: the time of a full store. x: the debt, or below zero the store. d = 1: a queue for c
--   w  SmoothWarmingUp. a: the rate, b: the warm-up, c: the cold factor. x: when the next ticket is free, y: the idle time in store,
--      zero when warm and b when cold, z: how far the last charge moved the ticket, w: the store before it
--   t  TokenBucket, Gcra. a: the rate, b: the capacity, c: the first content, d: the period of steps, from the epoch on; -1: a meter.
--      x: minus the tokens, as if they came continuously, y: the number of the last charge, z: see `note`
--   f  FixedWindow. a: the limit, b: the window, c: how far into a window the epoch was, -1 for windows that begin with their first
--      charge. x: when the window began, y: what was granted in it, z: the number of its first charge
--   s  SlidingWindowLog, SlidingWindowCounter. a: the limit, b: the window, c: a part of it, a nanosecond for a log. x: when the log
--      began, from which its times are counted, y: all permits in it, z: the time of the last grant, w: for each part with a grant the
--      time of the last one, the permits, and the number of its first charge; the oldest first
--   p  InFlight. a: how many places; of the request and not of the policy: b: what this process holds before it, c: how long a lease on
--      that lasts, d: how long the process counts as waiting, or zero. x: from when times are counted, y: for each process its id, what it holds, when its lease ends; when its turn
--      began, until when it waits, and for how much
--   o  LockOut: a refusal by one of the next b rules locks these for a. c, d: the numbers of their costs. x: the rest of the lock
--   i  Of several rules, in order. x: when the last booking is due. A rule that did not limit it must not let a later call pass it

-- The head: the number of the request; a hash of the kinds of the rules (times 2^33) and of their parameters (times 2); the kind of a
-- lone rule without a rank, in upper case for several equal calls, and else `-`. Then what its refusal needs; below what a grant needs.
local read, write, call, request = struct.unpack, struct.pack, redis.call, ARGV[1]
local number, stamp, alone, patience = read('<ddc1xd', request)
local time, key = call('TIME'), KEYS[1]
local blob, now = call('GET', key), time[1] * 1000000 + time[2]

-- The usual call: at a key under the same policy, and granted, or refused alone. All else begins again below: nothing has changed.
-- First for a SmoothBursty, in as few steps as possible and without functions: to define them costs as much as a decision.
if (alone == 'b' or alone == 'B') and blob and #blob == 36 then
  local its, deadline, sequence, last, x = read('<dI4ddd', blob)
  if its == stamp and now >= last then
    x = x - (now - last)
    -- Waits are rounded up, as by `math.ceil`, which is a call. Due within a thousandth of a microsecond is due.
    if alone == 'b' and x - 0.001 > patience and x < 2 ^ 49 then return write('<dd', number, (x - 0.001 + (0.001 - x) % 1) * 4 + 2) end
    local limit, cost, calls, a, b, c, d, keep = read('<dI4xI2xddddxxd', request, 27)
    local span, granted, wait, values = cost * 1000000 / a, 0, 0, calls > 1 and {} or nil
    -- Within a microsecond of a full store it stays: see below.
    if x < -b - 1 then x = -b end
    while granted < calls do
      if x > 0.001 then wait = x - 0.001 + (0.001 - x) % 1 end
      if wait > limit or d == 1 and (cost > c or x + span > c * 1000000 / a) then break end
      granted, x = granted + 1, x + span
      if values then values[granted] = wait * 4 end
    end
    if granted == calls and now + x + b + keep + 1000001 <= deadline * 1000000 then
      call('SETRANGE', key, '12', write('<ddd', sequence + granted, now, x))
      if not values then return write('<ddd', number, sequence, wait * 4) end
      return write('<dd' .. ('d'):rep(granted), number, sequence, unpack(values))
    end
  end
end

-- How long before `at` the last step of a clock with this period was, or half a microsecond after it: `now` has 51 bits.
local function past(at, period, offset)
  if period <= 1 then return 0 end
  local rest = math.fmod(now + at + offset, period)
  return rest > period - 0.5 and rest - period or rest
end
-- How much of a charge of a bucket may still come back, as in src/policy/refund_levels.rs. A level is what is missing from a full
-- store. `lows` has up to four pairs, the latest first: a level, and the number of a charge. Of that charge and later ones no more
-- than the level comes back, and nothing of charges before the last pair. Notes that the charge after `last` finds `level`.
local function note(lows, level, last)
  if level < 0.001 then return '' end
  if #lows == 48 then
    -- Nearly always, under load: the new level becomes one with the latest.
    local one, _, two, _, three, _, four = struct.unpack('<dI4dI4dI4d', lows)
    local ratio = level / one
    if ratio > 1 and ratio < one / two and ratio < two / three and ratio < three / four then return lows end
  end
  while lows ~= '' do
    local low, since = struct.unpack('<dI4', lows)
    if low < level then break end
    last, lows = since, lows:sub(13)
  end
  lows = struct.pack('<dI4', level, last) .. lows
  if #lows > 48 then
    -- Of five, the two neighbours whose ratio is smallest become one, with the lower level.
    local l, place = {struct.unpack('<dI4dI4dI4dI4d', lows)}, 1
    for i = 3, 7, 2 do
      if l[i] / l[i + 2] <= l[place] / l[place + 2] then place = i end
    end
    lows = lows:sub(1, 6 * place - 6) .. lows:sub(6 * place + 7)
  end
  return lows
end
-- When a rule grants `n` permits, and the state after a charge of them that is due at `at`.
local function ready(kind, n, x, y, a, b, c, d)
  if kind == 'w' then return n * 1000000 / a > 4611686018427387.904 and math.huge or x end
  if kind == 'f' then return n > a and math.huge or y + n <= a and x or x + b end
  if n > b then return math.huge end
  local at = x + n * 1000000 / a
  local since = d > 1 and past(at, d, 0) or 0
  return since > 0.5 and at - since + d or at
end
local function charge(kind, n, at, number, x, y, z, w, a, b, c, d)
  local span = n * 1000000 / a
  if kind == 'f' then
    -- A number from before the window is used again if all later charges were refunded.
    if at > x + b - 0.001 then
      x, y, z = c < 0 and at or at - math.max(past(at, b, c), 0), 0, number
    elseif number < z then
      z = number
    end
    return x, y + n, z
  elseif kind == 't' then
    -- No more than a full store is there, as seen from the last step.
    local missing = x + b * 1000000 / a - at + (d > 1 and past(at, d, 0) or 0)
    return x - (missing < -1 and missing or 0) + span, number % 4294967296, note(z, missing, y)
  end
  -- Idle time goes into the store; less than a microsecond stays in the ticket: waits are rounded up to whole microseconds.
  local ticket, store = x, y
  if at - x >= 1 then x, y = at, y + at - x < b and y + at - x or b end
  -- The stable interval, and what the ramp adds: the trapezoid's area above that, from here to what is left.
  local steep, less = b * 4 / (5 + c), 2 * span * (1 + c) / (5 + c)
  local above = y - b + steep
  y = y > less and y - less or 0
  local left = y - b + steep
  local area = (above > 0 and above * above or 0) - (left > 0 and left * left or 0)
  x = x + span + b * (c - 1) / (c + 1) * area / (steep * steep)
  return x, y, x - ticket, store
end

local get, put, size, alone = nil, nil, -1, alone:lower()
if alone == 'w' then get, put, size = '<dI4dddddd', '<dddddd', 60 end
if alone == 'f' then get, put, size = '<dI4ddddd', '<ddddd', 52 end
if alone == 't' then get, put, size = '<dI4dddI4Bc0', '<dddI4Bc0', 41 + (blob and blob:byte(41) or 0) end
if blob and #blob == size then
  local limit, cost, calls, a, b, c, d, keep = read('<dI4xI2xddddxxd', request, 27)
  local its, deadline, sequence, last, x, y, z, w = read(get, blob)
  if its == stamp and now >= last then
    local before, granted, wait, values = sequence, 0, 0, calls > 1 and {} or nil
    x = x - (now - last)
    while granted < calls do
      local due = ready(alone, cost, x, y, a, b, c, d)
      wait, due = due > 0 and math.ceil(due - 0.001) or 0, due > 0 and due or 0
      if wait > limit then break end
      sequence, granted = sequence + 1, granted + 1
      x, y, z, w = charge(alone, cost, due, sequence, x, y, z, w, a, b, c, d)
      if values then values[granted] = wait * 4 end
    end
    if granted == calls then
      local new_at = alone == 'w' and x + b - y or x + b
      if alone == 't' then new_at, size, z, w = x + b * 1000000 / a + (d > 0 and d or 0), 41 + #z, #z, z end
      if now + (new_at > 0 and new_at or 0) + keep + 1000000 <= deadline * 1000000 then
        local state = write(put, sequence, now, x, y, z, w)
        local whole = size ~= #blob and blob:sub(1, 12) .. state
        call(whole and 'SET' or 'SETRANGE', key, whole or '12', whole and 'KEEPTTL' or state)
        if not values then return write('<ddd', number, before, wait * 4) end
        return write('<dd' .. ('d'):rep(granted), number, before, unpack(values))
      end
    elseif calls == 1 and wait > patience and wait < 2 ^ 49 then
      return write('<dd', number, wait * 4 + 2)
    end
  end
end

-- All else: a function, so that the usual call does not pay for its frame, with arguments, as to capture a variable costs more.
return (function(read, write, call, request, number, stamp, key, now, blob, past, note, ready, charge)
if #request < 80 then request, number, stamp = write(unpack(ARGV)), ARGV[2] + 0, ARGV[3] + 0 end -- a format is shorter than any request
local max, min, floor, ceil = math.max, math.min, math.floor, math.ceil
-- The tail: of each rule the kind and the number of the cost that counts there, or zero; how long the key lives beyond the time in
-- which it is as new; the process; the rank of the policy; whether an absent key was idle for long; whether a policy is set; then
-- numbers: how many a cost has, and how many rules there are.
local keep, process, version, generation, idle, sets, width, count = read('<ddI4I4BBBB', request, #request - 27)

-- The key: its stamp; a second before which it does not expire; the number of its last charge, counted from the microsecond in which
-- it began; when it was written; the state of each rule. Before that, if the stamp is one more: the rest of a pause, negative after
-- its end; how long what was owed before it takes; the rank, and the parameters of the rules if there is one.
local its, deadline, sequence, last, from = blob and -1 or stamp, 0, now, now, 1
local pause, owed, rules, renewed = 0, 0, '', false
if blob and #blob > 27 then its, deadline, sequence, last, from = read('<dI4dd', blob) end
if its ~= stamp or version + generation > 0 then
  -- Data of another program, or another kind of policy.
  if floor(its / 8589934592) ~= floor(stamp / 8589934592) then return write('<dd', number, -1) end
  local its_version, its_generation = 0, 0
  if its % 2 == 1 then pause, owed, its_version, its_generation, rules, from = read('<ddI4I4I2c0', blob, from) end
  -- The higher rank is in force, and of equal ranks the policy of the request. A policy that is set gets the highest.
  if sets == 1 then
    if its_version > version then version, generation = its_version, 0 end
    if its_version == version then generation = max(generation, its_generation) end
    stamp = its - its % 2
  elseif its_version > version or its_version == version and its_generation > generation then
    return write('<dddd', number, -2, its_version, its_generation) .. rules
  else
    renewed = blob and (its - its % 2 ~= stamp or its_version ~= version or its_generation ~= generation)
  end
end
local elapsed = max(now - last, 0)
if pause ~= 0 then pause, owed = pause ~= elapsed and pause - elapsed or -0.001, owed - elapsed end
-- After a change refunds of earlier charges return nothing, so the end of a pause does not matter any more.
if renewed then sequence, pause = sequence + 1, max(pause, 0) end
-- Whether something must be written. If the clock has gone back no time has passed.
local before, dirty = sequence, now < last

-- The rules. The state passes from `last` to now; before a policy is set, under the one in the key.
local parameters, at, new_rules = #request - 27 - 34 * count, 18, nil
local source, place = request, parameters
if sets == 1 and rules ~= '' then source, place = rules, 1 end
-- A turn at places is long beside the time in which the next process notices that the turn is over.
local leaves, locks, turn, entry, ends = {}, false, 100000, nil, nil
for i = 1, count do
  local kind, share = read('<c1B', request, #request - 29 + 2 * (i - count))
  local a, b, c, d, following
  a, b, c, d, place = read('<dddd', source, place)
  if kind == 'p' and source ~= request then b, c, d = read('<ddd', request, parameters + 32 * i - 24) end
  local shape = kind == 't' and '<dI4Bc0' or kind == 'w' and '<dddd' or kind == 'f' and '<ddd' or kind == 's' and '<dddI4'
    or kind == 'p' and '<dI4c0' or '<d'
  local x, y, z, w = 0, kind == 'p' and '' or 0, 0, kind == 's' and 0 or ''
  if blob then
    x, y, z, w, following = read(shape, blob, from)
    from = following or w or z or y
    x = x - elapsed
    if kind == 'f' and now < last and x + b > 0 then
      -- The clock has gone back: the count is of the present window.
      x = max(x, 0)
      if c >= 0 then x = x - max(past(x, b, c), 0) end
    end
  elseif kind == 'b' then
    x = idle == 1 and -b or 0
  elseif kind == 'w' then
    y, w = b, b
  elseif kind == 't' then
    x = -min(idle == 1 and b or c, b) * 1000000 / a - past(0, d, 0)
  elseif kind == 'f' then
    -- A new one began long ago: otherwise a longer window that is set later would have begun already.
    x = -4503599627370496
  end
  if kind == 't' and (renewed or not blob) then y, z = sequence % 4294967296, '' end
  local p = {kind = kind, share = share, a = a, b = b, c = c, d = d, x = x, y = y, z = z, w = w, shape = shape}
  leaves[i], locks = p, locks or kind == 'o'
  if kind == 's' then
    -- Entries from `first` to `final`, those up to `kept` as they are in the key, others in `over`: no call copies a long log.
    p.first, p.final, p.kept, p.over, p.from, from = 1, w / 16, w / 16, {}, from, from + w
    entry = function(p, i)
      local over = p.over[i]
      if over then return over[1], over[2], over[3] end
      return read('<dI4I4', blob, p.from + 16 * i - 16)
    end
    -- When the part of the window ends to which a time of the log belongs, from now.
    ends = function(p, time)
      return p.b + p.x + time - past(p.x + time, p.c, 0)
    end
    -- Forgets the entries that have ended by now, not those that will have at a grant: a caller that is booked ahead may leave.
    while sets == 0 and p.first <= p.final do
      local time, permits = entry(p, p.first)
      if ends(p, time) > 0.001 then break end
      p.first, p.y = p.first + 1, p.y - permits
    end
  elseif kind == 'p' then
    -- A process sets its own entry in each request, so the next one repairs a lost reply, and renews its lease in time. A dead process
    -- loses what it holds when its lease ends, and stops waiting when its next request is overdue.
    local held, leased, settled, age = 0, 0, 0, -x
    p.since, p.waits, p.wants, p.needs, p.others, p.w, p.z = age - turn, 0, 0, 0, 0, '', {}
    for i = 1, #y, 40 do
      local id, n, ends, since, waits, wants = read('<dI4dddI4', y, i)
      if id == process then
        held, leased, p.since, p.waits, p.wants = n, ends, since, waits, wants
      else
        if ends <= age then n = 0 end
        if waits > age then p.z[#p.z + 1] = {n, wants, since} else settled = settled + n end
        if n > 0 or waits > age then p.w = p.w .. y:sub(i, i + 39) end
        p.others = p.others + n
      end
    end
    -- Now `y` is the share of each process that waits, `z` has the others that wait, and `w` all others.
    p.y = floor((a - settled) / (#p.z + 1))
    if held ~= b or b > 0 and leased - age < c * 0.7 then dirty = true end
    if d == 0 and p.waits > age then p.waits, dirty = 0, true end
  end
end

if blob and from ~= #blob + 1 then return write('<dd', number, -1) end

-- What is reported, and where the state is. When the call before is due, as a window whose grid has changed may begin earlier. Calls
-- behind one that must wait are projected on a copy of the `real` rules, as if that were charged, unless it is `opaque` for how long.
local values, states_at, cost, latest, opaque, real, gone = {}, {}, nil, 0, false, nil, nil
local what, owes, available, halt = request:sub(at, at), nil, nil, nil
if what ~= 'T' then
  -- Whether `x` of a rule is a debt. Idle time goes into the store of a SmoothWarmingUp.
  owes = function(p)
    if p.kind == 'w' and p.x <= -1 then p.x, p.y = 0, min(p.y - p.x, p.b) end
    return p.kind == 'b' or p.kind == 'w' or p.kind == 't'
  end

  -- How many permits rules would grant now, and at most, for each number of a cost: the least counts. Rounding errors cost no permit.
  available = function(from, to)
    local there, limits = {}, {}
    for i = 1, width do there[i], limits[i] = 4294967295, 4294967295 end
    for i = from, to do
      local p = leaves[i]
      local kind, x, y, a, b, share = p.kind, p.x, p.y, p.a, p.b, p.share
      local free, most = 0, a
      if kind == 'b' then
        free, most = min(-x, b) * a / 1000000, b * a / 1000000
      elseif kind == 'w' then
        local each = a * (5 + p.c) / (2000000 * (1 + p.c))
        free, most = x > 0.001 and 0 or min(y - x, b) * each, b * each
      elseif kind == 't' then
        free, most = min(-(x + past(0, p.d, 0)) * a / 1000000, b), b
      elseif kind == 'f' then
        free = a - (x + b > 0 and y or 0)
      elseif kind == 's' then
        free = a - y
      elseif kind == 'p' then
        free = a - b - p.others
      elseif kind == 'o' and x > 0 then
        for share = p.c, p.d do there[share] = 0 end
      end
      free, most = floor(free * (1 + 1e-14) + 1e-9), floor(most * (1 + 1e-14) + 1e-9)
      if share > 0 then there[share], limits[share] = max(min(there[share], free), 0), min(limits[share], most) end
    end
    return there, limits
  end

  -- In a pause nothing comes, and what is owed is due at its end at the earliest. Returns for how long something was owed.
  halt = function(duration, begins)
    local longest = 0
    for i = 1, count do
      local p = leaves[i]
      if owes(p) then
        local x = max(p.x, duration)
        longest = max(longest, p.x)
        if begins and p.kind == 't' then p.y, p.z = (sequence + 1) % 4294967296, note(p.z, x - duration, p.y) end
        p.x = x
      end
    end
    return longest
  end
end

-- What to do, up to a zero byte: calls, or else changes, each a letter and its arguments. A cost has `width` numbers of four bytes.
--   T  takes permits: how long a call waits at most; how far ahead it may be booked; the cost; whether it is new; how many equal calls.
--      Reports wait x 4 + verdict: 0 booked (charged now, and lost if its process dies: the key does not say for whom), 1 later,
--      2 refused, 3 full; of several rules also which limits. A wait is below 2^49; 2^49 more is the least, 2^50 one that never ends
--   S  settles: a cost that is charged whether it is ready or not
--   D  asks for each limit, for a cost: how many there are, what is available of each, and when more than that and the cost is, or -1
--   R  refunds: a cost; all that is charged under its number; how long ago that was due; the number (its lower 32 bits); whether it is all
--   P  pauses for a time; E ends a pause; N sets a policy: its stamp and rules, and reports its rank
--   H  writes the key, with what the process holds, or to see whether that is permitted; X is the last, and deletes it
--   Q  asks for what is available, the limit, when all is available again, how long a pause lasts, how long the key lives; -1: unknown
while what ~= '\0' do
  at = at + 1
  if what == 'T' or what == 'S' or what == 'D' then
    local calls, limit, patience, limits = 1, 0, 0, {}
    if what == 'T' then patience, limit, at = read('<dd', request, at) end
    local asked = {read('<' .. ('I4'):rep(width) .. 'BI2', request, at)} -- a call is new, or not; how many
    if what == 'T' then calls, at = asked[width + 2], at + 3 end
    at, cost = at + 4 * width, asked
    if what == 'D' then
      -- Of several rules with one cost each is a limit, otherwise they are one.
      for i = 1, width == 1 and count or 0 do
        if leaves[i].share > 0 then limits[#limits + 1] = i end
      end
      calls = max(#limits, 1)
      values[#values + 1] = calls
    end
    for call = 1, calls do
      local first, final, shut, charged = 1, count, 0, nil
      if what == 'D' then
        -- More than what is there now. Nothing is granted while it is shut.
        first, final, shut, cost = limits[call] or 1, limits[call] or count, max(pause, 0), {}
        for j = 1, limits[call] or 0 do
          local p = leaves[j]
          if p.kind == 'i' or p.kind == 'o' and first <= j + p.b then shut = max(shut, p.x) end
        end
        local there = available(first, final)
        for j = 1, width do
          if shut > 0.001 then there[j] = 0 end
          values[#values + 1] = there[j]
          cost[j] = max(asked[j], there[j] + 1)
        end
      end
      -- When the rules are ready, and the last of them, as it limits; whether that is unpredictable, which counts as later than all
      -- else; and when a queue has room. The refusal of a call behind others locks by the real rules, so these are asked first.
      local after, unknown, part, longest, room
      for pass = real and locks and 1 or 2, 2 do
        local rules = pass == 1 and real or leaves
        after, unknown, part, longest, room = latest, false, 0, 0.001, 0
        for i = first, what == 'S' and 0 or final do
          local p, ready_at, blind = rules[i], 0, false
          local n, kind = cost[p.share] or 0, p.kind
          if kind == 'o' then for share = p.c, p.d do n = n + cost[share] end end
          -- A rule for which the call costs nothing does not limit it.
          if n == 0 and count > 1 and kind ~= 'i' then kind = nil end
          if kind == 'o' then
            ready_at = p.x
          elseif kind == 'i' then
            after = max(after, p.x)
          elseif kind == 'b' then
            -- No request of a smooth rule takes longer than 2^62 ns.
            ready_at = (n * 1000000 / p.a > 4611686018427387.904 or p.d == 1 and n > p.c) and math.huge or p.x
            if p.d == 1 then
              -- Nothing leaks in a pause, but what a pause holds back is no content.
              local held = max(pause, 0)
              local over = max(p.x - held, 0) + (n - p.c) * 1000000 / p.a
              if over > 0.001 then room = max(room, ceil(held + over)) end
            end
          elseif kind == 's' then
            -- When enough permits have left the window; not before an earlier caller. The next call goes on where this one has
            -- looked: `sum` permits are before that, and `less` before the entry before.
            local over = n > p.a and 0 or p.y + n - p.a
            if over > 0 and (not p.looked or over <= p.less) then p.looked, p.sum, p.less = p.first, 0, 0 end
            while over > 0 and p.sum < over do
              local _, permits = entry(p, p.looked)
              p.less, p.sum, p.looked = p.sum, p.sum + permits, p.looked + 1
            end
            ready_at = n > p.a and math.huge or p.x + p.z
            if over > 0 then ready_at = max(ready_at, ends(p, (entry(p, p.looked - 1)))) end
          elseif kind == 'p' then
            -- While others wait, each waiting process has a share of the places, and the remainder goes round in turns: beyond its
            -- share a process takes until its turn is over, and after that if no other turn began earlier. For one that has waited for
            -- a turn for more than its share and one place the others leave room, as it would never fit beside them.
            local share, age = p.y, -p.x
            local small, large, mine = p.b + n <= share, p.b + n > share + 1 and age - p.since > turn, p.b <= share
            for j = 1, (small or age - p.since >= turn) and #p.z or 0 do
              local holds, wants, since = unpack(p.z[j])
              local earlier = holds + wants > share + 1 and age - since > turn
              if earlier == large then earlier = since < p.since and not small end
              if earlier and holds <= share then mine = false end
            end
            blind = p.b + p.others + n > p.a or not mine
            if n > p.a then ready_at = math.huge end
            p.needs = blind and n or 0
          elseif kind then
            ready_at = ready(kind, n, p.x, p.y, p.a, p.b, p.c, p.d)
          end
          after = max(after, ready_at)
          if blind and not unknown or ready_at > longest and (blind or not unknown) then
            part, longest, unknown = i, max(ready_at, 0.001), blind or unknown
          end
          if locks then p.wait, p.blind = ready_at, blind end
        end
        if pause > after then after, part = pause, 0 end
        unknown = unknown or opaque
      end
      local wait, verdict = after > 0 and ceil(after - 0.001) or 0, 2
      if what == 'S' then
        charged = 0
      elseif what == 'D' then
        values[#values + 1] = (unknown or after == math.huge) and -1 or ceil(max(after, shut, 0.001) - 0.001)
      elseif after == math.huge then
        wait, unknown = 1125899906842624, false
      elseif wait > patience or unknown and patience == 0 then
        -- Only the refusal of a new call locks: a waiter that is late is not refused by the rule.
        local rules = real or leaves
        for i = 1, locks and asked[width + 1] == 1 and count or 0 do
          local p = rules[i]
          if p.kind == 'o' and p.x <= 0 then
            for j = i + 1, i + p.b do
              if rules[j].blind or rules[j].wait > 0.001 then p.x, leaves[i].x, dirty = p.a, p.a, true end
            end
            wait = max(wait, ceil(p.x - 0.001))
          end
        end
      elseif room > 0 and wait > 0 and asked[width + 1] == 1 then
        wait, unknown, verdict = room, false, 3
      elseif wait <= limit and not (real or unknown) then
        charged, verdict = max(after, 0), 0
      else
        verdict = 1
        if not real then
          real, leaves = leaves, {}
          for i = 1, count do
            local p, copy = real[i], {}
            local span = min(p.d, patience)
            if p.kind == 'p' and p.needs > 0 and span > 0 then
              if p.waits + p.x < span / 2 then dirty = true end
              p.waits, p.wants = span - p.x, p.needs
            end
            for name, value in pairs(p) do copy[name] = value end
            if p.over then copy.over = setmetatable({}, {__index = p.over}) end
            leaves[i] = copy
          end
        end
        if not opaque then charged, opaque = max(after, 0), unknown end
      end
      if what == 'T' then
        if wait < 1125899906842624 then wait = min(wait, 562949953421311) + (unknown and 562949953421312 or 0) end
        values[#values + 1] = wait * 4 + verdict
        if count > 1 then values[#values + 1] = part end
      end
      for i = 1, charged and count or 0 do
        local p = leaves[i]
        local n, kind = cost[p.share] or 0, p.kind
        if kind == 'i' then
          p.x = max(p.x, charged)
        elseif kind == 'o' or n == 0 and count > 1 then
          -- It costs nothing there.
        elseif kind == 'b' then
          -- Within a microsecond of a full store it stays: waits are rounded up, and without a store each grant would lose that.
          p.x = (p.x < charged - p.b - 1 and charged - p.b or p.x) + n * 1000000 / p.a
        elseif kind == 's' then
          local j, time, total, its_number = p.final + 1, max(charged - p.x, p.z), n, (sequence + 1) % 4294967296
          if p.first < j then
            local newest, permits, earlier = entry(p, j - 1)
            if math.abs(ends(p, newest) - ends(p, time)) < (p.c <= 1 and 0.001 or 0.5) then
              n = min(n, 4294967295 - permits)
              j, total, its_number = j - 1, n + permits, earlier
              if p.looked and p.looked > j then p.sum = p.sum + n end
            end
          end
          p.y, p.z, p.final, p.kept, p.over[j] = p.y + n, time, j, min(p.kept, j - 1), {time, total, its_number}
        elseif kind ~= 'p' then
          p.x, p.y, p.z, p.w = charge(kind, n, charged, sequence + 1, p.x, p.y, p.z, p.w, p.a, p.b, p.c, p.d)
        elseif what == 'T' then
          -- A process has already reported the places that are settled.
          if -p.x - p.since >= turn and p.b + n > p.y then p.since = -p.x end
          p.b, p.waits = p.b + n, 0
        end
      end
      latest = charged or latest
      if charged and not real then sequence, dirty = sequence + 1, true end
    end
  elseif what == 'R' then
    local r = {read('<' .. ('I4'):rep(2 * width) .. 'dI4B', request, at)}
    local ago, its_number, is_all = r[2 * width + 1], r[2 * width + 2], r[2 * width + 3]
    at, its_number = r[2 * width + 4], sequence - (sequence - its_number) % 4294967296
    for i = 1, blob and count or 0 do -- if the key is lost, so is the charge
      local p = leaves[i]
      local n, all = r[p.share] or 0, r[width + p.share]
      local kind, x, each, is_last = n > 0 and p.kind, p.x, 1000000 / p.a, its_number == sequence
      -- No credit across a pause, even one that has ended: only the debt beyond its end comes back, and that only if nothing was
      -- charged since, where the key does not say how much that was.
      local is_paid = ago < 0 or pause + ago > 0 and pause ~= 0 and sequence - its_number > 1
      if kind == 't' then
        -- No more than the lowest level since, and the levels since would have been lower by as much. If it is all of the last
        -- charge, the one before it is the last again. What the store has no room for is cut off by the next charge.
        local function age(number) return (sequence - number) % 4294967296 end
        local lows, its, later, after, back = p.z, age(its_number), age(p.y), 0, n * each
        while its > later and after < #lows do
          local low, since = read('<dI4', lows, after + 1)
          back, later, after = min(back, low), age(since), after + 12
        end
        if its <= later and its >= age(p.y) then
          local is_undone = after == 0 and n == all
          p.x, p.y, p.z = x - back, is_undone and (p.y - 1) % 4294967296 or p.y, ''
          for place = #lows - 11, 1, -12 do
            local low, since = read('<dI4', lows, place)
            if not is_undone or age(since) > its then p.z = note(p.z, place < after and low - back or low, since) end
          end
        end
      elseif kind == 'w' and is_last and p.z >= 0 then
        -- Exact, as if only the rest had been charged. The charge before that one is unknown then, and z is -1.
        p.x, p.y, p.z = x - p.z, p.w, -1
        if n < all then p.x, p.y, p.z, p.w = charge(kind, all - n, -ago, sequence, p.x, p.y, p.z, p.w, p.a, p.b, p.c, p.d) end
      elseif kind == 'b' or kind == 'w' then
        -- At the stable price. If it is not the last charge no more than time has not replenished already, and no more than the store
        -- holds; and nothing before it is due, or the next caller would be due together with the last one that is booked behind it.
        local back = is_paid and 0 or max(min(n * each, all * each - ago, kind == 'b' and p.b or math.huge), 0)
        local rest = x - (kind == 'b' and is_last and n * each or back)
        p.x = kind == 'b' and rest < -p.b - 1 and min(x, -p.b) or rest
      elseif kind == 'f' and its_number >= p.z and ago + x < 2147483648 then
        -- Exact within the window. Only the lower bits of a number are known: what is older by half their range is another one.
        p.y = max(p.y - n, 0)
      elseif kind == 's' then
        -- Exact. The entry is the last one whose first charge was not later.
        local low, high = p.first - 1, p.final
        while low < high do
          local middle = ceil((low + high) / 2)
          local _, _, number = entry(p, middle)
          if (sequence - number) % 4294967296 >= sequence - its_number then low = middle else high = middle - 1 end
        end
        if low >= p.first and ago + entry(p, low) + x <= 2147483648 + p.c then
          local time, permits, number = entry(p, low)
          n = min(n, permits)
          p.y, p.over[low], p.kept, p.looked = p.y - n, {time, permits - n, number}, min(p.kept, low - 1), nil
          -- An entry without permits is not the last one.
          permits = low < p.final and 1 or permits - n
          while permits == 0 do
            p.final, p.kept, p.z, permits = p.final - 1, min(p.kept, p.final - 1), 0, 1
            if p.first <= p.final then p.z, permits = entry(p, p.final) end
          end
        end
      end
    end
    if pause ~= 0 then halt(pause) end
    -- If the last charge is undone, the one before it is the last.
    if blob and its_number == sequence and is_all == 1 then sequence = sequence - 1 end
    dirty = dirty or blob
  elseif what == 'P' then
    local duration, following = read('<d', request, at)
    local longest = halt(duration, true)
    if pause <= 0 then owed = longest end
    at, pause, sequence, dirty = following, max(pause, duration), sequence + 1, true
  elseif what == 'E' and pause > 0 then
    -- What was halted, and is due at the end of the pause, becomes due now, or when the debt is paid.
    local early = pause - max(owed, 0)
    for i = 1, early > 0 and count or 0 do
      local p = leaves[i]
      if owes(p) then p.x = p.x - early end
      if p.kind == 't' then p.y, p.z = (sequence + 1) % 4294967296, '' end
    end
    pause, sequence, dirty = -0.001, sequence + 1, true
  elseif what == 'N' then
    local theirs, place = read('<d', request, at)
    -- Other kinds of rules are another limit.
    if blob and floor(theirs / 8589934592) ~= floor(stamp / 8589934592) then return write('<dd', number, -1) end
    new_rules, at = request:sub(place, place + 32 * count - 1), place + 32 * count
    generation = max(generation + 1, min(floor(now / 1000000), 4294967295))
    if not blob or theirs ~= stamp then
      -- A window keeps its start, a lock that has begun its end, and of a SmoothBursty what is stored or owed its time.
      for i = 1, count do
        local p, a, b, c, d = leaves[i], read('<dddd', new_rules, 32 * i - 31)
        owes(p)
        if p.kind == 'b' then
          p.x = max(p.x, -p.b)
        elseif p.kind == 'w' then
          p.y = min(p.y, b)
        elseif p.d < 0 then
          -- A meter keeps its content. In a pause that is the content at its end, when a meter is full.
          local rest = max(pause, 0)
          p.x = (p.x + p.b * 1000000 / p.a - rest) * p.a / a + rest - b * 1000000 / a
          if pause > 0 then p.x = max(p.x, rest) end
        elseif p.kind == 't' then
          -- What was stored at the last step keeps its number, debt its time. Where the steps change, the earlier last step counts.
          local since = max(past(0, d, 0), past(0, p.d, 0))
          local held = p.x + since
          if held < 0 then held = max(held * p.a, -p.b * 1000000, -b * 1000000) / a end
          p.x = held - since
        end
        if p.kind == 't' then p.y, p.z = (sequence + 1) % 4294967296, '' end
        if p.kind == 'p' then p.a = a else p.a, p.b, p.c, p.d = a, b, c, d end
      end
      stamp, sequence, pause = theirs, sequence + 1, max(pause, 0)
    end
    dirty = true
    values[#values + 2], values[#values + 1] = generation, version
  elseif what == 'Q' then
    local there, limits = available(1, count)
    for i = 1, width do values[#values + 1] = pause > 0 and 0 or there[i] end
    for i = 1, width do values[#values + 1] = limits[i] end
    states_at[#states_at + 1] = #values + 1
    values[#values + 3], values[#values + 2], values[#values + 1] = -1, ceil(max(pause, 0)), -1
  end
  -- To look takes no key over, but what was set and lost comes back. A limiter that is not idle when new must begin to fill.
  dirty = dirty or what == 'H' or what == 'T' and not blob and keep > 0 or renewed and (generation > 0 or what ~= 'Q' and what ~= 'D')
  gone, what = what == 'X', request:sub(at, at)
end

-- The states of the rules; when all are as new, and whether that is unpredictable.
local pieces, need, unknown = {''}, max(pause, 0), false
for i = 1, (dirty or #states_at > 0) and count or 0 do
  local p = (real or leaves)[i]
  local kind, x, y, z, w = p.kind, p.x, p.y, p.z, p.w
  local new_at, place = x, #pieces + 1
  pieces[place] = ''
  if kind == 'b' or kind == 'f' then
    new_at = x + p.b
  elseif kind == 'w' then
    new_at = x + p.b - y
  elseif kind == 't' then
    new_at, z, w = ready(kind, p.b, x, y, p.a, p.b, p.c, p.d), #z, z
  elseif kind == 's' then
    new_at = p.first <= p.final and ends(p, (entry(p, p.final))) or 0
    w = 16 * (p.final - p.first + 1)
    if dirty and p.first <= p.kept then pieces[place + 1] = blob:sub(p.from + 16 * p.first - 16, p.from + 16 * p.kept - 1) end
    for j = max(p.first, p.kept + 1), dirty and p.final or 0 do pieces[#pieces + 1] = write('<dI4I4', entry(p, j)) end
  elseif kind == 'p' then
    -- At the latest when the leases end. When other processes wrote their leases, the key was set to live until then.
    new_at, unknown = p.b > 0 and p.c or 0, unknown or p.b + p.others > 0
    if p.b > 0 or p.waits > -x then w = write('<dI4dddI4', process, p.b, p.c - x, p.since, p.waits, p.wants) .. w end
    y, z, pieces[place + 1] = #w, '', w
  end
  pieces[place], need = write(p.shape, x, y, z, w), max(need, new_at)
end

-- One write carries the value and its expiry, which is set only when it is too short: to twice the time needed, at most a day more.
if gone then
  call('DEL', key)
elseif dirty then
  local head, milliseconds = '', nil
  if now + need + keep + 1000000 > deadline * 1000000 then
    local lives = min(need + keep, 9007199254740992)
    milliseconds = ceil((lives + min(lives, 86400000000)) / 1000) + 2000
    deadline = min(floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  if pause ~= 0 or version + generation > 0 then
    local set = version + generation == 0 and '' or new_rules or request:sub(parameters, parameters + 32 * count - 1)
    stamp, head = stamp + 1, write('<ddI4I4I2', pause, owed, version, generation, #set) .. set
  end
  pieces[1] = write('<dI4dd', stamp, deadline, sequence, now) .. head
  local value = table.concat(pieces)
  call('SET', key, value, unpack(milliseconds and {'PX', milliseconds} or {'KEEPTTL'}))
elseif #values == 0 then
  -- A ping: whether the server would accept a write. This one changes nothing.
  call('SETRANGE', key, '0', '')
end
for _, i in ipairs(states_at) do
  values[i] = unknown and -1 or ceil(max(need - 0.001, 0))
  values[i + 2] = (blob or dirty) and max(ceil(deadline * 1000000 - now), 0) or -1
end
if ARGV[2] then return {number, before, unpack(values)} end
return write('<dd' .. ('d'):rep(#values), number, before, unpack(values))
end)(read, write, call, request, number, stamp, key, now, blob, past, note, ready, charge)
