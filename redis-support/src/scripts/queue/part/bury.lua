-- Part: bury(). Needs the parts of form, insertion and keys; dead_cap the most dead letters, as a number.
-- Moves a message to the dead letters, or makes it wait another minute when they are full. `record` may be nil when
-- the state says that it has neither name nor key. Returns whether it is dead, and whether another one may go now.
local POSTPONED = 60000000
local function bury(id, state, doom, record)
  redis.call('ZREM', T, id)
  redis.call('HDEL', R, id)
  local full = redis.call('ZCARD', D) >= dead_cap
  redis.call('HSET', O, id, after(state, tonumber(string.sub(state, 1, 4), 16), string.sub(state, 9, 9), doom))
  if full then
    insert(id, 2 * (now + POSTPONED))
  else
    redis.call('ZADD', D, now, id)
  end
  local freed = false
  if string.sub(state, 10, 10) == '+' then
    local _, key = about(record or redis.call('HGET', M, id))
    freed = leave(id, key)
  end
  return not full, freed
end
