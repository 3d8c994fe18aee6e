local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
local terms, lasting, request = struct.unpack('<ddI4', params)
local function next_call(bytes, at)
  local t = {struct.unpack('<I4I4ddB', bytes, at)}
  return t[1], t[2], t[3], t[4], t[5], t[6]
end
local cost, count, limit, patience, fresh, at = next_call(params, 77)
local sequence, deadline, last, elapsed = now, 0, now, 0
local pause, owed, vouched, installed, dirty, ends = 0, 0, 0, 0, false, #params
local version, generation, grace = 0, 0, 0
local its_terms, its_at, stamp, mark
stamp, mark = struct.unpack('<I4I4', params)
local function is_zero(cost)
  if type(cost) == 'number' then return cost == 0 end
  for i = 1, #cost do if not is_zero(cost[i]) then return false end end
  return true
end
local since
local parts = {
(function()
local rate, capacity, initial, period = struct.unpack('<dddd', params, 21)
local level, top
local low, low2, low3, low4, void, end2, end3, end4
local function note(level)
  if level * 1000000000 < rate then
    low = nil
  elseif not low then
    if sequence ~= now then
      low, low2, low3, low4 = level, -1, -1, -1
      void, end2, end3, end4 = top, 0, 0, 0
    end
  elseif level > low then
    local d = level / low
    if low4 < 0 or d >= low / low2 or d >= low2 / low3 or d >= low3 / low4 then
      
      if low4 >= 0 then
        local a, b, c = low3 / low4, low2 / low3, low / low2
        if a <= b and a <= c then
          end4, low3, end3, low2, end2 = end3, low2, end2, low, top
        elseif b <= c then
          end3, low2, end2 = end2, low, top
        else
          end2 = top
        end
      else
        low4, end4, low3, end3, low2, end2 = low3, end3, low2, end2, low, top
      end
      low = level
    end
  else
    while level <= low2 do
      
      low2, end2, low3, end3, low4, end4 = low3, end3, low4, end4, -1, 0
    end
    low = level
  end
top = sequence + 1
end
top = 0
local function since_step(at)
  local rest = period > 0 and math.fmod(now + at, period) or 0
  return rest > period - 0.5 and rest - period or rest
end
local function begin(idle)
  local since
  since = since_step(0)
  level = -math.min(idle and capacity or initial, capacity) - since * rate / 1000000
end
local function resume(elapsed)
  level = level - elapsed * rate / 1000000
end
local function ready(n)
  local filled = (level + n) * 1000000 / rate
  local since
  since = since_step(filled)
  return n > capacity and math.huge or since > 0.5 and filled - since + period or filled
end
local function charge(at, n)
  local since
  since = since_step(at)
  local missing = level + capacity - (at - since) * rate / 1000000
  note(missing)
  if missing < -rate / 1000000 then level = level - missing end
  level = level + n
end
local function forget()
  local after
  after = ready(capacity)
  return after
end
local function load(bytes, at, last) level, top, at = struct.unpack('<dI4', bytes, at) if at < last then low, low2, low3, low4, void, end2, end3, end4 = struct.unpack('<ddddI4I4I4I4', bytes, at) else low = nil end end
local function save() return low and struct.pack('<dI4ddddI4I4I4I4', level, top, low, low2, low3, low4, void, end2, end3, end4) or struct.pack('<dI4', level, top) end
return {load = load, save = save, begin = begin, resume = resume, ready = ready, charge = charge, forget = forget}
end)(),
(function()
local most, window, grid = struct.unpack('<ddd', params, 53)
local start, granted, began
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
local function load(bytes, at, last) start, granted, began, at = struct.unpack('<dI5I7', bytes, at) end
local function save() return struct.pack('<dI5I7', start, granted, began) end
return {load = load, save = save, begin = begin, resume = resume, ready = ready, charge = charge, forget = forget}
end)(),
}
local function share(cost, i)
  if not true then cost = cost[i] end
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
  if #blob < 90 then return {request, 'foreign'} end
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
    local its_size = its_stamp % 4 > 1 and 0 or 56
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
  its_at = its_at + (stamp % 4 > 1 and 0 or 56)
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
    value = struct.pack('<I4I4I7I4I7dc0', stamp - stamp % 2 + 8, mark, sequence, deadline, now, since, params:sub(21, 76))
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack('<I4I4I7I4I7dc0', stamp, mark, sequence, deadline, now, since, params:sub(21, 76))
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
