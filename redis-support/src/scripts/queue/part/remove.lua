-- Part: unhold() and remove(). Needs the parts of form and keys.

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
    if place == 'T' and score % 2 == 1 then redis.call('ZREM', L, id) end -- its lease has ended
  end
  redis.call('HDEL', M, id)
  redis.call('HDEL', R, id)
  redis.call('HDEL', O, id)
  if name ~= '' then free_name(id, name) end
  if place ~= 'D' then depart(id, record) end
end
