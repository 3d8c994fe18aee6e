local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
local terms, lasting, request = struct.unpack('<ddI4', params)
local function next_call(bytes, at)
  local t = {struct.unpack('<I4I4I4ddB', bytes, at)}
  return {t[1], t[2]}, t[3], t[4], t[5], t[6], t[7]
end
local cost, count, limit, patience, fresh, at = next_call(params, 53)
local sequence, deadline, last, elapsed = now, 0, now, 0
local pause, owed, vouched, installed, dirty, ends = 0, 0, 0, 0, false, #params
local version, generation, grace = 0, 0, 0
local its_terms, its_at, stamp, mark
stamp, mark = struct.unpack('<I4I4', params)
local marks = {}
local function is_zero(cost)
  if type(cost) == 'number' then return cost == 0 end
  for i = 1, #cost do if not is_zero(cost[i]) then return false end end
  return true
end
local since
local parts = {
(function()
local most, window, part = struct.unpack('<ddd', params, 21)
local age, granted, newest
local log, first, stop, behind = '', 1, 0, 1
local added, looked, sum = {}, 1, 0
local function begin()
  age, granted, newest = 0, 0, 0
end
local function read(bytes, at, last)
  log, first, stop, behind = bytes, at, last, last + 1
  looked, sum = at, 0
end
local function entry(at)
  if at <= stop then return struct.unpack('<dI4I4', log, at) end
  at = (at - stop - 1) / 16 * 3
  return added[at + 1], added[at + 2], added[at + 3]
end
local function put_added(pieces)
  for at = math.max(first, stop + 1), behind - 1, 16 do
    pieces[#pieces + 1] = struct.pack('<dI4I4', entry(at))
  end
  return table.concat(pieces)
end
local function write(head)
  return head .. log:sub(first, stop) .. put_added({})
end
local function part_of(at)
  if part <= 1 then return at end
  local into = math.fmod(now + at, part)
  return into > part - 0.5 and at - into + part or at - into
end
local function ended(time)
  return part_of(time - age) + window
end
local function resume(elapsed)
  age = age + elapsed
end
local function ready(n)
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
local function drop_ended()
  while first < behind do
    local oldest, permits = entry(first)
    if ended(oldest) > 0.001 then return end
    first, granted = first + 16, granted - permits
    if looked < first then looked = first else sum = sum - permits end
  end
end
local function charge(at, n)
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
local function forget()
  if first == behind then return 0 end
  return ended((entry(behind - 16)))
end
local function load(bytes, at, last) age, granted, newest, at = struct.unpack('<ddd', bytes, at) read(bytes, at, last) end
local function save() return write(struct.pack('<ddd', age, granted, newest)) end
return {load = load, save = save, begin = begin, resume = resume, ready = ready, charge = charge, forget = forget}
end)(),
(function()
local most = struct.unpack('<d', params, 45)
local age
local held_at = 9
local own, told = ARGV[3]:sub(1, 8), struct.unpack('<d', ARGV[3], held_at)
local lasts, listens = struct.unpack('<dd', ARGV[3], #ARGV[3] - 15)
local entries, others, held, own_ends, since, waits, wants = '', 0, 0, 0, 0, 0, 0
local rivals, settled, needs = {}, 0, 0
local turn = 100000
local function begin()
  age, held, since, waits = 0, told, -turn, 0
  if held > 0 then dirty = true end
end
local function keep()
  local kept = {}
  others, rivals, settled = 0, {}, 0
  for at = 1, #entries, 40 do
    local id, n, ends, began, until_, size = struct.unpack('<c8I4dddI4', entries, at)
    if ends <= age then n = 0 end
    if until_ > age then
      rivals[#rivals + 1] = {n, began, size}
    else
      settled = settled + n
    end
    if n > 0 or until_ > age then
      kept[#kept + 1] = entries:sub(at, at + 39)
      others = others + n
    end
  end
  entries = table.concat(kept)
end
local function read(bytes, at, last)
  entries, held, own_ends, since, waits = bytes:sub(at, last), 0, 0, age - turn, 0
  for entry = 1, #entries, 40 do
    if entries:sub(entry, entry + 7) == own then
      held, own_ends, since, waits, wants = struct.unpack('<I4dddI4', entries, entry + 8)
      entries = entries:sub(1, entry - 1) .. entries:sub(entry + 40)
      break
    end
  end
  keep()
end
local function write(head)
  if held == 0 and waits <= age then return head .. entries end
  return head .. struct.pack('<c8I4dddI4', own, held, age + lasts, since, waits, wants) .. entries
end
local function resume(elapsed)
  age = age + elapsed
  if #entries > 0 then keep() end
  if held ~= told then held, dirty = told, true end
  if listens == 0 and waits > age then waits, dirty = 0, true end
  if held > 0 and own_ends - age < lasts * 0.7 then dirty = true end
end
local function share()
  return math.floor((most - settled) / (#rivals + 1))
end
local function is_large(holds, n, began)
  return holds + n > share() + 1 and age - began > turn
end
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
local function ready(n)
  if n > most then return math.huge end
  local unknown = held + others + n > most or #rivals > 0 and not is_turn(n)
  needs = unknown and n or 0
  return 0, unknown
end
local function charge(_, n)
  if age - since >= turn and held + n > share() then since = age end
  held, waits = held + n, 0
end
marks[#marks + 1] = function(patience)
  local span = math.min(listens, patience)
  if needs == 0 or span == 0 then return end
  if waits - age < span / 2 then dirty = true end
  waits, wants = age + span, needs
end
local function forget()
  return held > 0 and lasts or 0, held + others > 0
end
local function load(bytes, at, last) age, at = struct.unpack('<d', bytes, at) read(bytes, at, last) end
local function save() return write(struct.pack('<d', age)) end
return {load = load, save = save, begin = begin, resume = resume, ready = ready, charge = charge, forget = forget}
end)(),
}
local function share(cost, i)
  if not false then cost = cost[i] end
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
if blob then
  if #blob < 66 then return {request, 'foreign'} end
  its_terms, sequence, deadline, last, since, its_at = struct.unpack('<dI7I4I7d', blob)
end
if its_terms ~= terms then
  if stamp % 2 == 1 then
    ends = ends - 12
    version, generation, grace = struct.unpack('<I4I4I4', params, ends + 1)
  end
  if not blob then
    dirty = lasting > 0
    begin(stamp % 8 > 3)
  else
    local its_stamp, its_mark = struct.unpack('<I4I4', blob)
    local its_size = its_stamp % 4 > 1 and 0 or 32
    local extended = its_stamp % 16 > 7
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
        return {request, 'other', its_generation, struct.pack('<I4I4I4I4', its_stamp, its_version, quiet, taken) .. theirs}
    end
    if grace == 0 and quiet > 5 then dirty = true end
  end
else
  its_at = its_at + (stamp % 4 > 1 and 0 or 32)
  if now - last > 5000000 then dirty = true end
end
if blob then
  read(blob, its_at, #blob)
  if now > last then elapsed = now - last elseif now < last then dirty = true end
  if pause ~= 0 then
    pause, owed = pause - elapsed, owed - elapsed
    if pause == 0 then pause = -0.001 end
  end
  resume(elapsed)
end
local function save()
  local need
  need = forget()
  need = math.max(need, pause, 0) + lasting
  local milliseconds
  if now + need + 1000000 > deadline * 1000000 then
    need = math.min(need, 9007199254740992)
    milliseconds = math.ceil((need + math.min(need, 86400000000)) / 1000) + 2000
    deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  local value
  if pause ~= 0 or installed > 0 or generation > 0 or stamp % 2 == 1 then
    if grace == 0 then vouched = math.min(math.floor(now / 1000000), 4294967295) end
    value = struct.pack('<I4I4I7I4I7dc0', stamp - stamp % 2 + 8, mark, sequence, deadline, now, since, params:sub(21, 52))
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack('<I4I4I7I4I7dc0', stamp, mark, sequence, deadline, now, since, params:sub(21, 52))
  end
  value = write(value)
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
end
local values, filled, source, first = {request, sequence, 0}, 3, params, 1
local booked, blocked, opaque = sequence ~= values[2], false, false
local latest = 0
local function due(cost)
  local after, unknown, part = ready(cost)
  if latest > after then after = latest end
  if pause > after then after, part = pause, 0 end
  return after, unknown or opaque, part, after > 0 and math.min(math.ceil(after - 0.001), 562949953421311) or 0
end
local function block()
  if blocked then return end
  if booked or dirty then save() end
  blocked, booked, dirty = true, false, false
end
local function ask(cost, limit, patience, fresh)
  local after, unknown, part, wait = due(cost)
  if after == math.huge then return 4503599627370498, part end
  if wait <= limit and not (blocked or unknown) then
    latest = after > 0 and after or 0
    charge(latest, cost)
    sequence = sequence + 1
    booked = true
    return wait * 4, part
  end
  if wait > patience or (unknown and patience == 0) then
    return (unknown and wait + 562949953421312 or wait) * 4 + 2, part
  end
  if blocked and patience == 0 then return 2, part end
  if not blocked then for i = 1, #marks do marks[i](patience) end end
  block()
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
      filled = filled + 1
      values[filled] = part or 0
    end
  end
  if at > ends then
    if source == todo or not todo or todo == '' then break end
    source, at, ends = todo, 1, #todo
  end
  cost, count, limit, patience, fresh, at = next_call(source, at)
  first = 1
end
if booked or dirty then save() end
return values
