tick()
-- Where the message of a name stands; nil when the name is free.
local function known(name)
  local id = redis.call('HGET', I, 'n' .. name)
  if id then return standing(find(id)) end
  local known_until = redis.call('ZSCORE', S, name)
  if known_until and tonumber(known_until) > now then return 5 end
  return nil
end

if limit > 0 then
  local fresh = 0
  for i = 5, #ARGV, 3 do
    if ARGV[i + 1] == '' or not known(ARGV[i + 1]) then fresh = fresh + 1 end
  end
  if redis.call('HLEN', M) - redis.call('ZCARD', D) + fresh > limit then return -1 end
end

local first = redis.call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
head = first and tonumber(first) or math.huge
-- A message's number tells when it was pushed: those of a batch end at now, unless that many were given already.
local count = (#ARGV - 4) / 3
if number < now - count then number = now - count end
local answers, scores, records, batch = {}, {}, {}, {}
local saved = false
for i = 5, #ARGV, 3 do
  local due, name = now + tonumber(ARGV[i]), ARGV[i + 1]
  local state = name ~= '' and (batch[name] or known(name))
  if state then
    answers[#answers + 1] = state
  else
    number = number + 1
    local id = string.format('%014x', number)
    if name ~= '' then
      if not saved then save() end
      saved = true
      redis.call('HSET', I, 'n' .. name, id)
      redis.call('ZREM', S, name)
      batch[name] = due <= now and 2 or 1
    end
    local n = #scores
    scores[n + 1], scores[n + 2] = 2 * due, id
    records[n + 1], records[n + 2] = id, ARGV[i + 2]
    if 2 * due < soonest then soonest = 2 * due end
    answers[#answers + 1] = id
  end
end
if #scores > 0 then
  save()
  redis.call('ZADD', T, unpack(scores))
  redis.call('HSET', M, unpack(records))
  if not first then redis.call('ZADD', X, 0, queue) end
  wake_if_sooner()
end
if next(batch) then -- forgets a few names whose window has ended
  local ended = redis.call('ZRANGE', S, '-inf', now, 'BYSCORE', 'LIMIT', 0, 512)
  if #ended > 0 then redis.call('ZREM', S, unpack(ended)) end
end
return answers
