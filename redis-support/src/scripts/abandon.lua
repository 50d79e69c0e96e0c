-- abandon: undoes whatever a token asked for (lease, place in the queue) and refuses what it may still ask for.
-- KEYS  K lock, X tombstone of the token, Q queue, W presence, D direct, F fence counter
-- ARGV  token, member, tombstone ms, turn as its part says
-- Returns 1; -2 when pass has to continue.
-- Atomic because a request of the same token between two steps would leave a lock without an owner. Works when out of
-- memory: a script that has begun to write with commands that free memory may continue to write.
local K, X, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, turn = ARGV[2], ARGV[4]
-- @include part/refusal.lua
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/line.lua
-- @include part/serve.lua
-- @include part/bury.lua
-- Read before the removal: if the turn was this token's, the next waiter has to get it.
local head = redis.call('ZRANGE', Q, '0', '0')[1]
local value = redis.pcall('GET', K)
local bad = refusal(value, 'GET')
if bad then return bad end
local freed = type(value) == 'string' and string.sub(value, 1, 22) == ARGV[1]
if freed then redis.call('DEL', K) end
-- The deletions come first, since they work without memory; the tombstone then refuses a request that arrives later.
drop(member)
redis.call('SET', X, '1', 'PX', ARGV[3])
-- Otherwise the turn at a free lock was given before, and a second waiter would be woken for it.
if (freed or head == member) and redis.call('EXISTS', K) == 0 then serve() end
return budget > 0 and 1 or -2
