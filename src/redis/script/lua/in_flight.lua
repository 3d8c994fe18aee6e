-- InFlight: at most `most` places are held at any time. The tail has an entry for each process: its id, how
-- much it holds, when its lease on that ends; when its turn began, until when it waits, and for how much. Times
-- are microseconds after the base, which was `age` ago. A process sets its own entry in each request, so the
-- next request repairs a lost reply. A process that sends no more loses what it holds when its lease ends, and
-- stops waiting when its next request is overdue.
--
-- A process that releases and takes in one request would never leave a place to others. So while others wait,
-- each waiting process has a share of the places, and the remainder of the division goes round in turns.
--
-- ARGV[3]: the id of the process, eight bytes; what it holds, a double for each such policy; how long a lease
-- lasts, and how long the process counts as waiting if it must wait: zero if it has no waiters.
--@ params most
--@ short I4
--@ fields d age
--@ tail
--@ also held
local own, told = ARGV[3]:sub(1, 8), struct.unpack('<d', ARGV[3], held_at)
local lasts, listens = struct.unpack('<dd', ARGV[3], #ARGV[3] - 15)
local entries, others, held, own_ends, since, waits, wants = '', 0, 0, 0, 0, 0, 0
-- The other waiting processes; what the processes that do not wait hold; what the last call that was not ready
-- needs.
local rivals, settled, needs = {}, 0, 0
-- How long a turn lasts (microseconds): long beside the time in which the next process notices its end.
local turn = 100000

-- A process that has just come is behind all that wait, and before those that have just had a turn.
local function begin()
  age, held, since, waits = 0, told, -turn, 0
  if held > 0 then dirty = true end
end

-- The entries of others that hold or wait.
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
  -- Each request renews the lease in time.
  if held > 0 and own_ends - age < lasts * 0.7 then dirty = true end
end

-- The share of each waiting process.
local function share()
  return math.floor((most - settled) / (#rivals + 1))
end

-- Whether a process has waited for a turn for more than its share and one place of the remainder: the others
-- then leave room for it, as it would never fit beside them.
local function is_large(holds, n, began)
  return holds + n > share() + 1 and age - began > turn
end

-- Whether `n` more may be taken while others wait: up to the share, and beyond it until the turn is over, and
-- after that if no other turn began earlier.
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

-- The first call that must wait marks the process as waiting.
marks[#marks + 1] = function(patience)
  local span = math.min(listens, patience)
  if needs == 0 or span == 0 then return end
  if waits - age < span / 2 then dirty = true end
  waits, wants = age + span, needs
end

-- When all places are free is unpredictable; at the latest when the leases end. When the others were written, the
-- key was set to live until their leases end.
local function forget()
  return held > 0 and lasts or 0, held + others > 0
end
--@ change

-- The process has already reported what was settled.
charge = function() end

-- The process reports what it no longer holds.
local function refund() end

local function halt() return 0 end

local function unhalt() end

local function migrate() end

local function available()
  return math.max(most - held - others, 0)
end

local function limit()
  return most
end
