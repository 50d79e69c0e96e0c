-- Part: listen(). Needs clock; C the clients that wait, by the queue time until which they count as waiting.
-- A client that asks again is kept for 10 minutes; of more than 1000 the one that asked the longest ago is forgotten.
local PRESENCE = 600000000
local function listen(client)
  local until_when = tonumber(redis.call('ZSCORE', C, client) or '0')
  if until_when > now + PRESENCE / 2 then return end
  if redis.call('ZCARD', C) >= 1000 then redis.call('ZREM', C, redis.call('ZRANGE', C, 0, 0)[1]) end
  redis.call('ZADD', C, now + PRESENCE, client)
  redis.call('PEXPIRE', C, PRESENCE / 1000)
end
