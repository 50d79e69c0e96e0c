-- rights: tries every command that the other scripts use, without leaving anything behind.
-- KEYS  P a key of its own that nothing else uses, S a side key of the same kind
-- ARGV  channel prefix
-- Returns for each denied command its name and the server's words. A denial does not stop the script.
-- Atomic so that no client sees the probe's keys.
local P, S = KEYS[1], KEYS[2]
local denied = {}
local function try(name, ...)
  local reply = redis.pcall(name, ...)
  if type(reply) == 'table' and reply.err then
    denied[#denied + 1] = name
    denied[#denied + 1] = reply.err
  end
end
try('DEL', P, S)
try('TIME')
try('GET', P)
try('MGET', P)
try('EXISTS', P)
try('TYPE', P)
try('PTTL', P)
try('SET', P, '0', 'PX', '1000')
try('SETRANGE', P, 0, '1')
try('PEXPIRE', P, 1000)
try('DEL', P)
try('HSET', P, 'f', '1')
try('HGET', P, 'f')
try('HMGET', P, 'f')
try('HEXISTS', P, 'f')
try('HLEN', P)
try('HSCAN', P, 0)
try('HDEL', P, 'f')
try('ZADD', S, 1, 'm')
try('ZRANGE', S, 0, 0)
try('ZRANK', S, 'm')
try('ZSCORE', S, 'm')
try('ZCARD', S)
try('ZCOUNT', S, 0, 1)
try('ZREM', S, 'm')
try('PUBLISH', ARGV[1] .. 'rights', '')
try('DEL', P, S)
return denied
