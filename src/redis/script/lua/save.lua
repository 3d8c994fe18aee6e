-- One write carries the value and its expiry. The expiry is set anew, and to twice what is needed,
-- only when it has become too short.
local function save()
  local need
  need = $forget()
  if pause > need then need = pause end
  -- What was set for all holds after a while without callers, too: for a year.
  if generation > 0 and need < 31622400000000 then need = 31622400000000 end
  local milliseconds
  if now + need + 1000000 > deadline * 1000000 then
    milliseconds = math.ceil(math.min(need, 9007199254740992) / 500) + 2000
    deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  local value
  if pause ~= 0 or generation > 0 then
    local own = generation > 0 and params:sub(10, 9 + $LENGTH) or ''
    value = struct.pack('<I4I4I4d$FORMAT', mark + 2147483648, sequence, deadline, now, $FIELDS)
      .. struct.pack('<dI4I4', pause, generation, #own) .. own
  else
    value = struct.pack('<I4I4I4d$FORMAT', mark, sequence, deadline, now, $FIELDS)
  end
  --@tail value = write(value)
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
end
