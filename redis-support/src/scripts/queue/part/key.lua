-- Part: free_name(), leave() and depart(). Needs keys, form and insertion.
-- In I a field is 'n' and a name, or 'k' and a concurrency key; its value is the number of the message that has the
-- name, or that is in flight with the key. What finds its key in flight is held: in H by its due time, in J (all scores
-- 0) by length and bytes of the key, due time.
local function place_in_j(key, at, id)
  return string.format('%02x', string.len(key)) .. key .. string.format('%014x', at) .. id
end

-- A message of this name goes away. The name is free, unless a foreign hand had it used anew: then it is a newer message's,
-- and false is returned.
local function free_name(id, name)
  local leads_to = redis.call('HGET', I, 'n' .. name)
  if leads_to then if leads_to ~= id then return false end redis.call('HDEL', I, 'n' .. name) end
  return true
end

-- A message of this key went away, or is not in flight any more: the first that was held may go. Returns whether one did.
-- A member of J that is not in H is of no account.
local function leave(id, key)
  if key == '' then return false end
  local busy = redis.call('HGET', I, 'k' .. key)
  if busy and busy ~= id then return false end
  if busy then redis.call('HDEL', I, 'k' .. key) end
  local own = string.format('%02x', string.len(key)) .. key
  for _ = 1, 64 do
    local held = redis.call('ZRANGE', J, '[' .. own, '(' .. own .. 'g', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not held then return false end
    local other, at = string.sub(held, -14), tonumber(string.sub(held, -28, -15), 16)
    redis.call('ZREM', J, held)
    if redis.call('ZREM', H, other) == 1 then
      insert(other, 2 * (at or now))
      return true
    end
  end
  return false
end

-- Keys whose messages this run hands out.
local taken = {}

-- Whether a message of the key is in flight. A mark without a delivery is of no account.
local function is_busy(id, key)
  if taken[key] then return true end
  local other = redis.call('HGET', I, 'k' .. key)
  return other and other ~= id and redis.call('HEXISTS', R, other) == 1
end

-- A message went whose key is unknown: of each key that is not in flight, the first that was held may go. Looks at
-- 256 keys.
local function leave_any()
  local from, freed = '-', false
  for _ = 1, 256 do
    local held = redis.call('ZRANGE', J, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not held then break end
    local length = tonumber(string.sub(held, 1, 2), 16)
    if length then
      local key = string.sub(held, 3, 2 + length)
      if not is_busy('', key) then
        redis.call('HDEL', I, 'k' .. key)
        freed = leave('', key) or freed
      end
      from = '(' .. string.sub(held, 1, 2 + length) .. 'g'
    else
      redis.call('ZREM', J, held)
    end
  end
  return freed
end

-- The message of this record went away, or is not in flight any more. Returns whether another one may go.
local function depart(id, record)
  if not record then return leave_any() end
  local why, _, key = read(record)
  if why then return leave_any() end
  return leave(id, key)
end
