-- Part: find() and standing(). Needs keys and clock.

-- Where a message is: the set, and its score there.
local function find(id)
  local score = redis.call('ZSCORE', T, id)
  if score then return 'T', tonumber(score) end
  score = redis.call('ZSCORE', H, id)
  if score then return 'H', tonumber(score) end
  score = redis.call('ZSCORE', D, id)
  if score then return 'D', tonumber(score) end
  return nil
end

-- 1 scheduled, 2 ready, 3 in flight, 4 dead, as the place says; nil for a name without a message.
local function standing(place, score)
  if place == 'H' then return 2 end
  if place == 'D' then return 4 end
  if not place then return nil end
  if score <= 2 * now + 1 then return 2 end
  return score % 2 == 1 and 3 or 1
end
