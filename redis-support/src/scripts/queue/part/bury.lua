-- Part: bury() and bury_damaged(). Needs the parts of form, insertion and keys; dead_cap the most dead letters.
-- Both move a message to the dead letters, or make it wait another minute when they are full. Both return whether it is
-- dead, and whether another one may go now.
local POSTPONED = 60000000

-- `record` may be nil when the state says that it has neither name nor key.
local function bury(id, state, doom, record)
  -- Deletions first: they work without memory, and let the next ones work.
  redis.call('ZREM', T, id)
  redis.call('HDEL', R, id)
  local full = redis.call('ZCARD', D) >= dead_cap
  redis.call('HSET', O, id, after(state, attempt_of(state), string.sub(state, 9, 9), doom))
  if full then
    insert(id, 2 * (now + POSTPONED))
  else
    redis.call('ZADD', D, now, id)
  end
  local freed = false
  if record or string.sub(state, 10, 10) == '+' then freed = depart(id, record or redis.call('HGET', M, id)) end
  return not full, freed
end

-- A message of which something cannot be read; its record stays as it is. One whose id is no number is given one.
local function bury_damaged(id, record, state, why)
  if not state or flaw_of_state(state, record) then state = first_state(record) end
  if not is_number(id) then
    for _, place in ipairs({R, O, M}) do redis.call('HDEL', place, id) end
    redis.call('ZREM', T, id)
    number = number + 1
    id = string.format('%014x', number)
    redis.call('HSET', M, id, record)
    save()
  end
  local reason = '=damaged: ' .. why
  return bury(id, after(state, attempt_of(state), string.sub(state, 9, 9), 'X', reason), 'X', record)
end
