-- Part: settle_other() and forget(). Needs the parts of form, insertion, keys and burial. The part of settling says what a
-- settlement is.

-- The state of a message that comes again, whose record is changed for that. A damaged record stays as it is.
local function recur(id, state, arg)
  local length = tonumber(string.sub(arg, 44, 47), 16)
  local recurrence, reason = string.sub(arg, 48, 47 + length), string.sub(arg, 48 + length)
  local record = redis.call('HGET', M, id)
  if not record or read(record) then return after(state, 0, 'F', '-', reason) end
  record = again(record, recurrence)
  redis.call('HSET', M, id, record)
  return first_state(record) .. reason
end

local function settle_other(id, state, arg)
  tick()
  -- First, since it works without memory; from here on the receipt is stale.
  redis.call('HDEL', R, id)
  local kind, attempt = string.sub(arg, 29, 29), attempt_of(state)
  local doom
  if kind == 'd' or kind == 'x' then
    doom = kind == 'd' and 'R' or 'X'
    state = after(state, attempt, string.sub(state, 9, 9), doom, string.sub(arg, 30))
  elseif kind == 'r' then
    state = after(state, attempt, 'T', '-', string.sub(arg, 44))
    if attempt >= (tonumber(string.sub(state, 5, 8), 16) or 0) then doom = 'E' end
  elseif kind == 'c' then
    state = recur(id, state, arg)
  else
    -- A return and a parking give the attempt back.
    state = after(state, attempt - 1, kind == 'b' and 'B' or 'P', '-')
  end
  if doom then return bury(id, state, doom) and 2 or 3 end
  redis.call('HSET', O, id, state)
  insert(id, 2 * (now + tonumber(string.sub(arg, 30, 43), 16)))
  if string.sub(state, 10, 10) == '+' then depart(id, redis.call('HGET', M, id)) end
  return 1
end

-- What is left to do for acknowledged messages with a name or a key.
local function forget(id, record)
  local name, key, window = about(record or '')
  if name ~= '' and free_name(id, name) then
    if window > 0 then
      tick()
      redis.call('ZADD', S, now + window, name)
      local life = math.ceil(window / 1000)
      if redis.call('PTTL', S) < life then redis.call('PEXPIRE', S, life) end
    end
  end
  if key ~= '' or not record or read(record) then
    tick()
    depart(id, record)
  end
end
