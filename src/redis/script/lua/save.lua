-- One write carries the value and its expiry. The expiry is set only when it has become too short, and then to
-- twice the time needed, but at most a day more. Otherwise only the numbers that change are written.
local function save()
  local need
  need = $forget()
  need = math.max(need, pause, 0) + lasting
  local milliseconds
  if now + need + 1000000 > deadline * 1000000 then
    need = math.min(need, 9007199254740992)
    milliseconds = math.ceil((need + math.min(need, 86400000000)) / 1000) + 2000
    deadline = math.min(math.floor((now + milliseconds * 1000) / 1000000), 4294967295)
  end
  --@lows if not milliseconds and pause == 0 and its_terms == terms and low and had_lows then
  --@lows   if end2 then
  --@lows     redis.call('SETRANGE', key, '8', struct.pack('<$HEAD$FORMAT$LOWS_FORMAT', sequence, deadline, now, $FIELDS, $LOWS))
  --@lows   else
  --@lows     redis.call('SETRANGE', key, '8', struct.pack('<$HEAD$FORMATd', sequence, deadline, now, $FIELDS, low))
  --@lows   end
  --@lows elseif not milliseconds and pause == 0 and its_terms == terms and not (low or had_lows) then
  --@exact if not milliseconds and pause == 0 and its_terms == terms then
  --@plain   redis.call('SETRANGE', key, '8', struct.pack('<$HEAD$FORMAT', sequence, deadline, now, $FIELDS))
  --@plain else
  --@plain if not stamp then stamp, mark = struct.unpack('<I4I4', params) end
  local value
  if pause ~= 0 or installed > 0 or generation > 0 or stamp % 2 == 1 then
    if grace == 0 then vouched = math.min(math.floor(now / 1000000), 4294967295) end
    value = struct.pack($LAYOUT, stamp - stamp % 2 + 8, mark, sequence, deadline, now, $FIELDS, $OWN)
      .. struct.pack('<ddI4I4I4I4', pause, owed, version, generation, vouched, installed)
  else
    value = struct.pack($LAYOUT, stamp, mark, sequence, deadline, now, $FIELDS, $OWN)
  end
  --@lows if low then
  --@lows   $NUMBERS
  --@lows   value = value:sub(1, $STATE) .. struct.pack('<$LOWS_FORMAT', $LOWS) .. value:sub($STATE + 1)
  --@lows end
  --@tail value = write(value)
  if milliseconds then
    redis.call('SET', key, value, 'PX', milliseconds)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
  --@plain end
end
