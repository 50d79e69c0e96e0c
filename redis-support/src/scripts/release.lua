-- release: ends a plain lease if the token holds it, and wakes the first live waiter.
-- KEYS  K lock, Q queue, W presence
-- ARGV  token, claim ms, channel prefix
-- Returns 1 released; 0 not held by the token, nothing touched.
-- Atomic because the lock may change hands between the comparison and the deletion. Works when out of memory: the
-- deletion comes first.
local K, Q, W = KEYS[1], KEYS[2], KEYS[3]
local value = redis.pcall('GET', K)
if type(value) ~= 'string' or string.sub(value, 1, 23) ~= ARGV[1] .. ';' then
  return refusal(value, 'GET') or 0
end
redis.call('DEL', K)
if string.sub(value, 24, 24) ~= 'w' then return 1 end
local claim, channel = tonumber(ARGV[2]), ARGV[3]
