-- raise: writes the fence that a quorum agreed on back, if the token still has the lock and the counter is not ahead.
-- KEYS  K lock, F fence counter of the name
-- ARGV  token, fence, keep ms
-- Returns {1} the counter is the fence; {0} the token does not hold the lock; {-1, counter} the counter is ahead;
--         {-6, key, what it holds} the counter is damaged: no number, or more than a day ahead of the clock; {-7, key} the
--         fence is, and is not written.
-- Atomic because both conditions must hold when the counter is written: without either, two grants can come by the
-- same fence.
-- @include part/refusal.lua
-- @include part/now.lua
local K, F, token, fence = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local most = now_us + 86400000000
if tonumber(fence) > most then return {-7, F} end
local value = redis.pcall('GET', K)
if type(value) ~= 'string' or string.sub(value, 1, 22) ~= token then
  return refusal(value, 'GET') or {0}
end
local found = redis.call('GET', F) or '0'
local counter = tonumber(found)
if not (counter and counter <= most) then return {-6, F, found} end
if counter > tonumber(fence) then return {-1, string.format('%.0f', counter)} end
redis.call('SET', F, fence, 'PX', ARGV[3])
-- The value names the fence too: a repeated request and an inspection read it there.
local flag, own, ahead, label = string.match(value, '^[^;]*;(.);(%d+);(%-?%d*);(.*)$')
if flag then
  ahead = string.format('%.0f', fence - own + (tonumber(ahead) or 0))
  redis.call('SET', K, token .. ';' .. flag .. ';' .. fence .. ';' .. ahead .. ';' .. label, 'KEEPTTL')
end
return {1}
