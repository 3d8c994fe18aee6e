-- InFlight: at most `most` held at any time. The tail has a lease for each asker: its id, how much it
-- holds, when that ends (microseconds after the log's base, which was `age` ago). An asker's own lease
-- becomes what the asker says, so that a lost answer is made good by the next call; one that is not
-- heard of any more loses what it holds when its lease ends.
--
-- ARGV[3]: the asker's id, eight bytes; what it holds, a double for each such policy; how long a lease
-- lasts.
--@ params most
--@ fields d age
--@ tail
--@ also held several
local own, told = ARGV[3]:sub(1, 8), struct.unpack('<d', ARGV[3], held_at)
local lasts = struct.unpack('<d', ARGV[3], #ARGV[3] - 7)
local leases, others, held, own_ends = '', 0, 0, 0

local function begin()
  age, held = 0, told
  if held > 0 then dirty = true end
end

-- The leases of others that end after `time`.
local function keep(time)
  local kept, at = {}, 1
  others = 0
  while at <= #leases do
    local _, n, ends = struct.unpack('<c8I4d', leases, at)
    if ends > time then
      kept[#kept + 1] = leases:sub(at, at + 19)
      others = others + n
    end
    at = at + 20
  end
  leases = table.concat(kept)
end

local function read(bytes, at, last)
  leases, others, held = bytes:sub(at, last), 0, 0
  for lease = 1, #leases, 20 do
    local id, n, ends = struct.unpack('<c8I4d', leases, lease)
    if id == own then
      held, own_ends = n, ends
      leases = leases:sub(1, lease - 1) .. leases:sub(lease + 20)
      break
    end
  end
  keep(-1)
end

local function write(head)
  return head .. (held > 0 and struct.pack('<c8I4d', own, held, age + lasts) or '') .. leases
end

local function resume(elapsed)
  age = age + elapsed
  if #leases > 0 then keep(age) end
  if held ~= told then held, dirty = told, true end
  -- Whatever is asked renews the lease in time.
  if held > 0 and own_ends - age < lasts * 0.7 then dirty = true end
end

local function ready(n)
  if n > most then return math.huge end
  return 0, held + others + n > most
end

local function charge(_, n, count)
  held = held + n * (count or 1)
end

-- Nobody knows when all is free; the leases end at last.
local function forget()
  local latest = held > 0 and lasts or 0
  for at = 1, #leases, 20 do
    local _, _, ends = struct.unpack('<c8I4d', leases, at)
    latest = math.max(latest, ends - age)
  end
  return latest, held + others > 0
end
--@ change

-- What is settled the asker has told already.
charge = function() end

-- What is no longer held is told by the asker.
local function refund() end

local function halt() end

local function migrate() end

local function available()
  return math.max(most - held - others, 0)
end

local function limit()
  return most
end
