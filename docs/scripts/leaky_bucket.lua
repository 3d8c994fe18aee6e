local time = redis.call('TIME')
local key, params, todo = KEYS[1], ARGV[1], ARGV[2]
local now = time[1] * 1000000 + time[2]
local blob = redis.call('GET', key)
local terms, lasting, request, rate, capacity, meter, cost, count, limit, patience, fresh, at = struct.unpack('<ddI4dddI4I4ddB', params)
local sequence, deadline, last, elapsed = now, 0, now, 0
local pause, owed, vouched, installed, dirty, ends = 0, 0, 0, 0, false, #params
local version, generation, grace = 0, 0, 0
local its_terms, its_at, stamp, mark
local had_lows = false
local level
local low, low2, low3, low4, void, end2, end3, end4
local function note(level)
  if level * 1000000000 < rate then
    low = nil
  elseif not low then
    if sequence ~= now then
      low, low2, low3, low4 = level, -1, -1, -1
      void, end2, end3, end4 = sequence, 0, 0, 0
    end
  elseif level > low then
    local d = level / low
    if low4 < 0 or d >= low / low2 or d >= low2 / low3 or d >= low3 / low4 then
      if not end2 then void, end2, end3, end4 = struct.unpack('<I4I4I4I4', blob, 64) end
      if low4 >= 0 then
        local a, b, c = low3 / low4, low2 / low3, low / low2
        if a <= b and a <= c then
          end4, low3, end3, low2, end2 = end3, low2, end2, low, sequence
        elseif b <= c then
          end3, low2, end2 = end2, low, sequence
        else
          end2 = sequence
        end
      else
        low4, end4, low3, end3, low2, end2 = low3, end3, low2, end2, low, sequence
      end
      low = level
    end
  else
    while level <= low2 do
      if not end2 then void, end2, end3, end4 = struct.unpack('<I4I4I4I4', blob, 64) end
      low2, end2, low3, end3, low4, end4 = low3, end3, low4, end4, -1, 0
    end
    low = level
  end
end
local function begin()
  level = 0
end
local function resume(elapsed)
  level = level - elapsed * rate / 1000000
end
local function ready(n)
  if n > capacity then return math.huge end
  return (meter == 0 and level or level + n - capacity) * 1000000 / rate
end
local function charge(at, n)
  local missing = level - at * rate / 1000000
  note(missing)
  if missing < -rate / 1000000 then level = level - missing end
  level = level + n
end
local function forget()
  return level * 1000000 / rate
end
local function room(n)
  if meter ~= 0 then return 0 end
  local held = math.max(pause, 0)
  local over = (math.max(level - held * rate / 1000000, 0) + n - capacity) * 1000000 / rate
  return over > 0.001 and held + over or 0
end
if blob then
  if #blob < 44 then return {request, 'foreign'} end
  had_lows = #blob == 92 or #blob > 87
  if had_lows then
    its_terms, sequence, deadline, last, level, low, low2, low3, low4, its_at = struct.unpack('<dI4I4I7ddddd', blob)
    its_at = its_at + 16
  else
  its_terms, sequence, deadline, last, level, its_at = struct.unpack('<dI4I4I7d', blob)
  end
end
if its_terms ~= terms then
  stamp, mark = struct.unpack('<I4I4', params)
  if stamp % 2 == 1 then
    ends = ends - 12
    version, generation, grace = struct.unpack('<I4I4I4', params, ends + 1)
  end
  if not blob then
    dirty = lasting > 0
    begin(stamp % 8 > 3)
  else
    local its_stamp, its_mark = struct.unpack('<I4I4', blob)
    local its_size = its_stamp % 4 > 1 and 13 or 24
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
  if not milliseconds and pause == 0 and its_terms == terms and low and had_lows then
    if end2 then
      redis.call('SETRANGE', key, '8', struct.pack('<I4I4I7dddddI4I4I4I4', sequence, deadline, now, level, low, low2, low3, low4, void, end2, end3, end4))
    else
      redis.call('SETRANGE', key, '8', struct.pack('<I4I4I7dd', sequence, deadline, now, level, low))
    end
  elseif not milliseconds and pause == 0 and its_terms == terms and not (low or had_lows) then
    redis.call('SETRANGE', key, '8', struct.pack('<I4I4I7d', sequence, deadline, now, level))
  else
  if not stamp then stamp, mark = struct.unpack('<I4I4', params) end
  local value
  if pause ~= 0 or installed > 0 or generation > 0 or stamp % 2 == 1 then
    if grace == 0 then vouched = math.min(math.floor(now / 1000000), 4294967295) end
    value = struct.pack(stamp % 4 > 1 and '<I4I4I4I4I7ddI4B' or '<I4I4I4I4I7dddd', stamp - stamp % 2 + 8, mark, sequence, deadline, now, level, rate, capacity, meter)
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack(stamp % 4 > 1 and '<I4I4I4I4I7ddI4B' or '<I4I4I4I4I7dddd', stamp, mark, sequence, deadline, now, level, rate, capacity, meter)
  end
  if low then
    if not end2 then void, end2, end3, end4 = struct.unpack('<I4I4I4I4', blob, 64) end
    value = value:sub(1, 31) .. struct.pack('<ddddI4I4I4I4', low, low2, low3, low4, void, end2, end3, end4) .. value:sub(31 + 1)
  end
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
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
local function full_for(cost) return math.min(math.ceil(room(cost)), 562949953421311) end
local function block()
  if blocked then return end
  if booked or dirty then save() end
  blocked, booked, dirty = true, false, false
end
local function ask(cost, limit, patience, fresh)
  local after, unknown, part, wait = due(cost)
  if after == math.huge then return 4503599627370498, part end
  if wait <= limit and not (blocked or unknown) then
    if wait > 0 and fresh == 1 then local full = full_for(cost) if full > 0 then return full * 4 + 3, part end end
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
  if fresh == 1 then local full = full_for(cost) if full > 0 then return full * 4 + 3, part end end
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
