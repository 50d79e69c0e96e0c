-- permit_evict: takes a hold from its holder, by its fence, and notifies the waiters that fit now.
-- KEYS  R record, H ends of leases, G fences, Q line, W presence, D terms, F fence counter
-- ARGV  fence, turn as its part says
-- Returns {1|0, more} taken, or no hold has this fence; {-9} nothing is decided, ask again. more is 1 if permit_pass has to
--         continue.
-- Atomic so that the hold has this fence when it is ended.
local R, H, G, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local fence, turn = ARGV[1], ARGV[2]
local seen = redis.call('HMGET', R, 'u', 'g')
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
redis.call('HDEL', R, '') -- a script that has begun to write with a deletion may continue to write
-- @include permit/part/record.lua
-- @include permit/part/serve.lua
if not settled then return {-9} end
local token = redis.call('ZRANGE', G, fence, fence, 'BYSCORE')[1]
local hold = token and hold_of(token)
if hold then remove(token, hold.weight) end
serve()
return {hold and 1 or 0, more}
