-- Part: hold() and leave(). Needs keys and insertion.
-- In I a field is 'n' and a name, or 'k' and a concurrency key; its value is the number of the message that has the
-- name, or that is in flight with the key. What finds its key in flight is held: in H by its due time, in J (all scores
-- 0) by length and bytes of the key, due time.
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
