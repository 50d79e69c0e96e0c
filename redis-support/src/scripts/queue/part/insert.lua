-- Part: insert(), wake() and wake_if_sooner(). Needs keys and clock; queue its name; channel what the clients' channels
-- begin with. In T a score is twice a time in us, plus one for the end of a lease.
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
