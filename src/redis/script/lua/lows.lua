-- How much of a charge may still come back: the lowest levels since each charge, as in src/policy/lows.rs. A
-- level is what is missing from a full store, in permits. `low` counts for the latest charges, `low2` for those
-- before number `end2` (the lower 32 bits of a sequence), `low3` for those before `end3`, and so on; each is lower
-- than the one before it, and -1 if there is none. Of charges before `void` nothing comes back. Without a `low`
-- only the last charge comes back: a charge that found a full store leaves nothing to those before it. $LAST is
-- the number of the last charge; of a part of a composed policy, which is not charged with each charge of the key,
-- a field.
--
-- Most charges find a level that changes nothing or only `low`. So the numbers behind the levels are read only
-- to be changed, and only then written.
local low, low2, low3, low4, void, end2, end3, end4

-- The next charge finds this level. Less than a nanosecond of permits is rounding. No charge can come back before
-- the first one of a new key. Without a free place the two neighbours whose ratio is smallest become one.
local function note(level)
  if level * 1000000000 < rate then
    low = nil
  elseif not low then
    if sequence ~= now then
      low, low2, low3, low4 = level, -1, -1, -1
      void, end2, end3, end4 = $LAST, 0, 0, 0
    end
  elseif level > low then
    local d = level / low
    if low4 < 0 or d >= low / low2 or d >= low2 / low3 or d >= low3 / low4 then
      $NUMBERS
      if low4 >= 0 then
        local a, b, c = low3 / low4, low2 / low3, low / low2
        if a <= b and a <= c then
          end4, low3, end3, low2, end2 = end3, low2, end2, low, $LAST
        elseif b <= c then
          end3, low2, end2 = end2, low, $LAST
        else
          end2 = $LAST
        end
      else
        low4, end4, low3, end3, low2, end2 = low3, end3, low2, end2, low, $LAST
      end
      low = level
    end
  else
    while level <= low2 do
      $NUMBERS
      low2, end2, low3, end3, low4, end4 = low3, end3, low4, end4, -1, 0
    end
    low = level
  end
  --@part top = sequence + 1
end
--@part top = 0
--@ change

-- How much comes back of `n` permits of a charge of `all`: no more than the lowest level since, and the levels since
-- would have been lower by as much. If it is the last charge and all of it, the one before it is the last again.
local function take_back(n, all, number)
  local function age(number) return (sequence - number) % 4294967296 end
  if low then
    $NUMBERS
  end
  local last, since = age($LAST), age(number)
  if since < last or since > (low and age(void) or last) then return 0 end
  if low then
    local levels, ends, count = {low, low2, low3, low4}, {$LAST, end2, end3, end4}, 0
    while count < 4 and levels[count + 1] >= 0 and age(ends[count + 1]) < since do count = count + 1 end
    if count > 0 then n = math.min(n, levels[count]) end
    for i = 1, count do levels[i] = levels[i] - n end
    -- Those before that are not lower any more count for nothing.
    while count > 0 and count < 4 and levels[count + 1] >= levels[count] do
      table.remove(levels, count + 1)
      table.remove(ends, count + 1)
      levels[4], ends[4] = -1, 0
    end
    -- Where the lowest is zero now, nothing is left to those before.
    if count > 0 and levels[count] * 1000000000 < rate then
      void, levels[count], ends[count] = ends[count], -1, 0
    end
    low, low2, low3, low4 = unpack(levels)
    end2, end3, end4 = ends[2], ends[3], ends[4]
    if low < 0 then low = nil end
  end
  if since == last and n == all then
    local undone = ($LAST - 1) % 4294967296
    if low and age(void) > last then
      if age(end2) == last then end2 = undone end
      if age(end3) == last then end3 = undone end
      if age(end4) == last then end4 = undone end
    else
      low = nil
    end
    --@part top = undone
  end
  return n
end

-- No charge so far comes back.
local function forget_lows()
  low = nil
  --@part top = sequence + 1
end
