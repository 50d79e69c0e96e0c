-- exit: undoes one entry of a re-entrant lock; the last one frees it and gives the turn to the first live waiter.
-- KEYS  K lock, Q queue, W presence, D direct, F fence counter
-- ARGV  token, owner, turn as its part says
-- Returns how many entries remain, 0 when the lock is free now; -2 when it is and pass has to continue; -1 when there is no
--         such entry, nothing touched.
-- Atomic because the count and the deletion must agree. Works when out of memory: nothing here needs any first.
-- @include part/refusal.lua
local K, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local hold = redis.pcall('HGET', K, 'o')
if hold ~= ARGV[2] then return refusal(hold, 'HGET') or -1 end
-- A repeated exit finds no entry, and does not free what another one holds.
if redis.call('HDEL', K, '#' .. ARGV[1]) == 0 then return -1 end
local depth = redis.call('HLEN', K) - 4
if depth > 0 then return depth end
redis.call('DEL', K)
-- Usually there are no waiters, and none of the functions below has to be made.
if redis.call('EXISTS', Q) == 0 then return 0 end
local turn = ARGV[3]
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/line.lua
-- @include part/serve.lua
serve()
return budget > 0 and 0 or -2
