local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
local terms, lasting, request, most, window, grid, cost, count, limit, patience, fresh, at = struct.unpack('<ddI4dddI4I4ddB', params)
local sequence, deadline, last, elapsed = now, 0, now, 0
local pause, owed, vouched, installed, dirty, ends = 0, 0, 0, 0, false, #params
local version, generation, grace = 0, 0, 0
local its_terms, its_at, stamp, mark
local start, granted, began
if blob then
  if #blob < 60 then return {request, 'foreign'} end
  its_terms, sequence, deadline, last, start, granted, began, its_at = struct.unpack('<dI7I4I7dI5I7', blob)
end
if its_terms ~= terms then
  stamp, mark = struct.unpack('<I4I4', params)
  if stamp % 2 == 1 then
    ends = ends - 12
    version, generation, grace = struct.unpack('<I4I4I4', params, ends + 1)
  end
  if not blob then
    dirty = lasting > 0
do
  start, granted, began = -4503599627370496, 0, 0
end
  else
    local its_stamp, its_mark = struct.unpack('<I4I4', blob)
    local its_size = its_stamp % 4 > 1 and 14 or 24
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
  if now - last > 5000000 then dirty = true end
end
if blob then
  if now > last then elapsed = now - last elseif now < last then dirty = true end
  if pause ~= 0 then
    pause, owed = pause - elapsed, owed - elapsed
    if pause == 0 then pause = -0.001 end
  end
do
local elapsed = elapsed
  start = start - elapsed
  if now < last and start + window > 0 then
do
local at = math.max(start, 0)
  local into = grid < 0 and 0 or math.fmod(now + at + grid, window)
    start = into > window - 0.5 and at or at - into
end
  end
end
end
if count == 1 and not todo then
  local after
do
local n = cost
  after = n > most and math.huge or granted + n <= most and start or start + window
end
  if pause > after then after = pause end
  local wait = after > 0 and math.ceil(after - 0.001) or 0
  if wait > limit then
    if wait > patience and wait < 562949953421312 and not dirty then return struct.pack('<I4d', request, wait * 4 + 2) end
  elseif wait < 262144 then
do
local at, n = after > 0 and after or 0, cost
  local number = sequence + 1
  if at > start + window - 0.001 then
do
local at = at
  local into = grid < 0 and 0 or math.fmod(now + at + grid, window)
    start = into > window - 0.5 and at or at - into
end
    granted, began = 0, number
  elseif number < began then
    began = number
  end
  granted = granted + n
end
    sequence = sequence + 1
do
  local need
do
  need = math.max(start + window, 0)
end
  need = math.max(need, pause, 0) + lasting
  local milliseconds
  if now + need + 1000000 > deadline * 1000000 then
    need = math.min(need, 9007199254740992)
    milliseconds = math.ceil((need + math.min(need, 86400000000)) / 1000) + 2000
    deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  if not milliseconds and pause == 0 and its_terms == terms then
    redis.call('SETRANGE', key, '8', struct.pack('<I7I4I7dI5I7', sequence, deadline, now, start, granted, began))
  else
  if not stamp then stamp, mark = struct.unpack('<I4I4', params) end
  local value
  if pause ~= 0 or installed > 0 or generation > 0 or stamp % 2 == 1 then
    if grace == 0 then vouched = math.min(math.floor(now / 1000000), 4294967295) end
    value = struct.pack(stamp % 4 > 1 and '<I4I4I7I4I7dI5I7I4I5i5' or '<I4I4I7I4I7dI5I7ddd', stamp - stamp % 2 + 8, mark, sequence, deadline, now, start, granted, began, most, window, grid)
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack(stamp % 4 > 1 and '<I4I4I7I4I7dI5I7I4I5i5' or '<I4I4I7I4I7dI5I7ddd', stamp, mark, sequence, deadline, now, start, granted, began, most, window, grid)
  end
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
  end
end
    return struct.pack('<I4d', request, sequence % 4294967296 * 1048576 + wait * 4)
  end
end
local values, filled, source, first = {request, sequence, 0}, 3, params, 1
local told
repeat
  for call = 1, count do
    local after
do
local n = cost
    after = n > most and math.huge or granted + n <= most and start or start + window
end
    if pause > after then after = pause end
    local wait = after > 0.001 and math.ceil(after - 0.001) or 0
    if wait > limit then told, first = true, call break end
do
local at, n = after > 0 and after or 0, cost
  local number = sequence + 1
  if at > start + window - 0.001 then
do
local at = at
  local into = grid < 0 and 0 or math.fmod(now + at + grid, window)
    start = into > window - 0.5 and at or at - into
end
    granted, began = 0, number
  elseif number < began then
    began = number
  end
  granted = granted + n
end
    sequence = sequence + 1
    if wait == 0 and filled == 3 then
      values[3] = values[3] + 1
    else
      filled = filled + 1
      values[filled] = wait * 4
    end
  end
  if told then break end
  if at > ends then
    if source == todo or not todo or todo == '' then
do
  local need
do
  need = math.max(start + window, 0)
end
  need = math.max(need, pause, 0) + lasting
  local milliseconds
  if now + need + 1000000 > deadline * 1000000 then
    need = math.min(need, 9007199254740992)
    milliseconds = math.ceil((need + math.min(need, 86400000000)) / 1000) + 2000
    deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  if not milliseconds and pause == 0 and its_terms == terms then
    redis.call('SETRANGE', key, '8', struct.pack('<I7I4I7dI5I7', sequence, deadline, now, start, granted, began))
  else
  if not stamp then stamp, mark = struct.unpack('<I4I4', params) end
  local value
  if pause ~= 0 or installed > 0 or generation > 0 or stamp % 2 == 1 then
    if grace == 0 then vouched = math.min(math.floor(now / 1000000), 4294967295) end
    value = struct.pack(stamp % 4 > 1 and '<I4I4I7I4I7dI5I7I4I5i5' or '<I4I4I7I4I7dI5I7ddd', stamp - stamp % 2 + 8, mark, sequence, deadline, now, start, granted, began, most, window, grid)
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack(stamp % 4 > 1 and '<I4I4I7I4I7dI5I7I4I5i5' or '<I4I4I7I4I7dI5I7ddd', stamp, mark, sequence, deadline, now, start, granted, began, most, window, grid)
  end
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
  end
end
      return values
    end
    source, at, ends = todo, 1, #todo
  end
  cost, count, limit, patience, fresh, at = struct.unpack('<I4I4ddB', source, at)
until false
local function begin()
  start, granted, began = -4503599627370496, 0, 0
end
local function edge(at)
  local into = grid < 0 and 0 or math.fmod(now + at + grid, window)
  return into > window - 0.5 and at or at - into
end
local function resume(elapsed)
  start = start - elapsed
  if now < last and start + window > 0 then
    start = edge(math.max(start, 0))
  end
end
local function ready(n)
  return n > most and math.huge or granted + n <= most and start or start + window
end
local function charge(at, n)
  local number = sequence + 1
  if at > start + window - 0.001 then
    start = edge(at)
    granted, began = 0, number
  elseif number < began then
    began = number
  end
  granted = granted + n
end
local function forget()
  return math.max(start + window, 0)
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
  if not milliseconds and pause == 0 and its_terms == terms then
    redis.call('SETRANGE', key, '8', struct.pack('<I7I4I7dI5I7', sequence, deadline, now, start, granted, began))
  else
  if not stamp then stamp, mark = struct.unpack('<I4I4', params) end
  local value
  if pause ~= 0 or installed > 0 or generation > 0 or stamp % 2 == 1 then
    if grace == 0 then vouched = math.min(math.floor(now / 1000000), 4294967295) end
    value = struct.pack(stamp % 4 > 1 and '<I4I4I7I4I7dI5I7I4I5i5' or '<I4I4I7I4I7dI5I7ddd', stamp - stamp % 2 + 8, mark, sequence, deadline, now, start, granted, began, most, window, grid)
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack(stamp % 4 > 1 and '<I4I4I7I4I7dI5I7I4I5i5' or '<I4I4I7I4I7dI5I7ddd', stamp, mark, sequence, deadline, now, start, granted, began, most, window, grid)
  end
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
  end
end
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
