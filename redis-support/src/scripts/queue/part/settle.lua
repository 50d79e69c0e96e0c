-- Part: settle(). Needs the parts of form, insertion, keys and burial.
-- A settlement is one argument: number (14 hex), fence (14 hex), kind, then for 'r', 'b' and 'p' the delay in us (14 hex),
-- then for 'r', 'd' and 'x' the reason ('=' and its text, or nothing). Kinds: a ack, r retry, b return, p park, d dead, x
-- damaged.
-- Answers 1 done, 2 dead, 3 postponed, 0 stale. The first write of each frees memory, so that it works without any.
local function settle_other(id, state, arg)
  tick()
  redis.call('HDEL', R, id)
  local kind, attempt = string.sub(arg, 29, 29), attempt_of(state)
  local doom
  if kind == 'd' or kind == 'x' then
    doom = kind == 'd' and 'R' or 'X'
    state = after(state, attempt, string.sub(state, 9, 9), doom, string.sub(arg, 30))
  elseif kind == 'r' then
    state = after(state, attempt, 'T', '-', string.sub(arg, 44))
    if attempt >= (tonumber(string.sub(state, 5, 8), 16) or 0) then doom = 'E' end
  else
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
  if name ~= '' then
    redis.call('HDEL', I, 'n' .. name)
    if window > 0 then
      tick()
      redis.call('ZADD', S, now + window, name)
      local life = math.ceil(window / 1000)
      if redis.call('PTTL', S) < life then redis.call('PEXPIRE', S, life) end
    end
  end
  if key ~= '' or not record or flaw(record) then
    tick()
    depart(id, record)
  end
end

local function settle(from)
  local ids, answers, gone, extended = {}, {}, {}, {}
  for i = from, #ARGV do ids[#ids + 1] = string.sub(ARGV[i], 1, 14) end
  if #ids == 0 then return answers end
  local states = redis.call('HMGET', R, unpack(ids))
  local settled = {}
  for i, id in ipairs(ids) do
    local state, arg = states[i], ARGV[from + i - 1]
    if not state or settled[id] or string.sub(state, 12, 25) ~= string.sub(arg, 15, 28) then
      answers[i] = 0
    else
      settled[id] = true
      if string.sub(arg, 29, 29) == 'a' then
        answers[i] = 1
        gone[#gone + 1] = id
        if string.sub(state, 10, 10) == '+' then extended[id] = redis.call('HGET', M, id) end
      else
        answers[i] = settle_other(id, state, arg)
      end
    end
  end
  if #gone > 0 then
    redis.call('ZREM', T, unpack(gone))
    redis.call('HDEL', M, unpack(gone))
    redis.call('HDEL', R, unpack(gone))
    for id, record in pairs(extended) do forget(id, record) end
  end
  return answers
end
