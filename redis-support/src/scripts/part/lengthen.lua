-- Part: lengthen(key) makes a lease last for ARGV[1] ms from now, and returns how long it lasts if that is longer, else
-- nil. answer(others) is the reply, from what differs from ARGV[1]: the ms by the number of the key.
local ttl = ARGV[1]
local compares = redis.REDIS_VERSION_NUM -- from 7.0, where PEXPIRE knows GT as well

local function lengthen(key)
  if compares and redis.call('PEXPIRE', key, ttl, 'GT') == 1 then return nil end
  local left = redis.call('PTTL', key)
  if left >= tonumber(ttl) then return left end
  redis.call('PEXPIRE', key, ttl)
end

local function answer(others)
  if not next(others) then return tonumber(ttl) end
  for i = 1, #KEYS do others[i] = others[i] or tonumber(ttl) end
  return others
end
