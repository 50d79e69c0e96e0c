-- Part: lengthen(key) makes a lease last for so many ms from now, and returns how long it lasts if that is longer, else nil.
-- Needs ttl.
local compares = redis.REDIS_VERSION_NUM -- from 7.0, where PEXPIRE knows GT as well

local function lengthen(key)
  if compares and redis.call('PEXPIRE', key, ttl, 'GT') == 1 then return nil end
  local left = redis.call('PTTL', key)
  if left >= tonumber(ttl) then return left end
  redis.call('PEXPIRE', key, ttl)
end
