-- permit_pass: notifies the waiters that fit, where there were more than one script notifies.
-- KEYS  R record, H ends of leases, G fences, Q line, W presence, D terms, F fence counter
-- ARGV  turn as its part says
-- Returns {1, more}; {-9} ask again. more is 1 if it has to continue.
-- Atomic because a waiter may leave, or a hold end, between the look and the notification.
local R, H, G, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local turn = ARGV[1]
local seen = redis.call('HMGET', R, 'u', 'g')
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
redis.call('HDEL', R, '') -- a script that has begun to write with a deletion may continue to write
-- @include permit/part/record.lua
-- @include permit/part/serve.lua
if not settled then return {-9} end
serve()
return {1, more}
