-- Part: how messages move. Needs keys, clock and form; queue its name; channel what the clients' channels begin with.
-- In T a score is twice a time in us, plus one for the end of a lease. In I a field is 'n' and a name, or 'k' and a
-- concurrency key; its value is the number of the message that has the name, or that is in flight with the key. What
-- finds its key in flight is held: in H by its due time, in J (all scores 0) by length and bytes of the key, due time.
local head, soonest = nil, math.huge

-- Puts a message on the timeline, and notes whether it is sooner than all others.
local function insert(id, score)
  if not head then
    head = tonumber(redis.call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  redis.call('ZADD', T, score, id)
  if score < soonest then soonest = score end
end

-- Wakes the clients that asked last, 64 at most. One that does not listen any more is removed.
local function wake()
  local clients = redis.call('ZRANGE', C, '+inf', '(' .. string.format('%.0f', now), 'BYSCORE', 'REV', 'LIMIT', 0, 64)
  for _, client in ipairs(clients) do
    if redis.call('PUBLISH', channel .. client, '!' .. queue) == 0 then redis.call('ZREM', C, client) end
  end
end

local function wake_if_sooner()
  if soonest < (head or math.huge) then wake() end
end

local function place_in_j(key, at, id)
  return string.format('%02x', string.len(key)) .. key .. string.format('%014x', at) .. id
end

local function hold(id, key, at)
  redis.call('ZREM', T, id)
  redis.call('ZADD', H, at, id)
  redis.call('ZADD', J, 0, place_in_j(key, at, id))
end

-- A message of this key went away, or is not in flight any more: the first that was held may go. Tells whether one did.
local function leave(id, key)
  if key == '' then return false end
  local busy = redis.call('HGET', I, 'k' .. key)
  if busy and busy ~= id then return false end
  if busy then redis.call('HDEL', I, 'k' .. key) end
  local own = string.format('%02x', string.len(key)) .. key
  local held = redis.call('ZRANGE', J, '[' .. own, '(' .. own .. 'g', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not held then return false end
  local other, at = string.sub(held, -14), tonumber(string.sub(held, -28, -15), 16)
  redis.call('ZREM', J, held)
  redis.call('ZREM', H, other)
  insert(other, 2 * at)
  return true
end

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

-- Takes a message out of H and J.
local function unhold(id, key, at)
  redis.call('ZREM', H, id)
  redis.call('ZREM', J, place_in_j(key, at, id))
end

-- Removes a message that is not in flight, with its name.
local function remove(id, record, place, score)
  local name, key = about(record)
  if place == 'H' then
    unhold(id, key, score)
  else
    redis.call('ZREM', place == 'D' and D or T, id)
  end
  redis.call('HDEL', M, id)
  redis.call('HDEL', R, id)
  redis.call('HDEL', O, id)
  if name ~= '' then redis.call('HDEL', I, 'n' .. name) end
  if place ~= 'D' then leave(id, key) end
end

-- The number and record that an id means: '#' and a number, or 'n' and a name.
local function look_up(id)
  local named = string.sub(id, 1, 1) == 'n'
  local found = string.sub(id, 2)
  if named then found = redis.call('HGET', I, id) end
  local record = found and redis.call('HGET', M, found)
  if not record then return nil end
  if not named and about(record) ~= '' then return nil end
  return found, record
end
