-- Part: settle(). Needs the clock, and what is seldom.
-- A settlement is one argument: number (14 hex), fence (14 hex), kind, then for 'r', 'b', 'p' and 'c' the delay in us (14
-- hex), then for 'c' length (4 hex) and text of the recurrence, then for 'r', 'c', 'd' and 'x' the reason ('=' and its text, or
-- nothing). Kinds: a ack, r retry, b return, p park, c come again, d dead, x damaged.
-- Answers 1 done, 2 dead, 3 postponed, 0 stale. The first write of each frees memory, so that it works without any.

-- Whether this run has written something that works without memory: then everything else does.
local written = false

local function settle(from)
  local ids, answers, gone, extended, valid = {}, {}, {}, {}, {}
  local sub, byte = string.sub, string.byte
  for i = from, #ARGV do ids[i - from + 1] = sub(ARGV[i], 1, 14) end
  if #ids == 0 then return answers end
  load() -- what is damaged ends the run before it changes anything
  local states = redis.call('HMGET', R, unpack(ids))
  local settled = {}
  for i = 1, #ids do
    local id, state, arg = ids[i], states[i], ARGV[from + i - 1]
    if not state or settled[id] or sub(state, 12, 25) ~= sub(arg, 15, 28) then
      answers[i] = 0
    else
      -- A receipt that is in the run twice is stale the second time.
      settled[id] = true
      valid[#valid + 1] = id
      if byte(arg, 29) == 97 then -- 'a'
        answers[i] = 1
        gone[#gone + 1] = id
        if byte(state, 10) == 43 then extended[id] = redis.call('HGET', M, id) end
      else
        answers[i] = seldom().settle(id, state, arg)
      end
    end
  end
  if #gone > 0 then
    written = true
    redis.call('ZREM', T, unpack(gone))
    redis.call('HDEL', M, unpack(gone))
    redis.call('HDEL', R, unpack(gone))
    for id, record in pairs(extended) do seldom().forget(id, record) end
  end
  if marks ~= '' and #valid > 0 then seldom().make_room(valid) end
  return answers
end
