local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
local terms, lasting, request, most, cost, count, limit, patience, fresh, at = struct.unpack('<ddI4dI4I4ddB', params)
local sequence, deadline, last, elapsed = now, 0, now, 0
local pause, owed, vouched, installed, dirty, ends = 0, 0, 0, 0, false, #params
local version, generation, grace = 0, 0, 0
local its_terms, its_at, stamp, mark
stamp, mark = struct.unpack('<I4I4', params)
local marks = {}
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
if blob then
  if #blob < 35 then return {request, 'foreign'} end
  its_terms, sequence, deadline, last, age, its_at = struct.unpack('<dI4I4I7d', blob)
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
    local its_size = its_stamp % 4 > 1 and 4 or 8
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
  its_at = its_at + (stamp % 4 > 1 and 4 or 8)
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
    value = struct.pack(stamp % 4 > 1 and '<I4I4I4I4I7dI4' or '<I4I4I4I4I7dd', stamp - stamp % 2 + 8, mark, sequence, deadline, now, age, most)
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack(stamp % 4 > 1 and '<I4I4I4I4I7dI4' or '<I4I4I4I4I7dd', stamp, mark, sequence, deadline, now, age, most)
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
    end
  end
  if at > ends then
    if source == todo or not todo or todo == '' then break end
    source, at, ends = todo, 1, #todo
  end
  cost, count, limit, patience, fresh, at = struct.unpack('<I4I4ddB', source, at)
  first = 1
end
if booked or dirty then save() end
return values
