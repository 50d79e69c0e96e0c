-- pass: gives the turn at a free lock to the first live waiter, where so many dead ones were before it that the script
-- which freed the lock did not get there.
-- KEYS  K lock, Q queue, W presence, D direct, F fence counter
-- ARGV  turn as its part says
-- Returns 1; -2 when it has to continue.
-- Atomic because the lock may be taken, or another waiter come first, between the look and the turn.
local K, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local turn = ARGV[1]
-- Taken since the release: the next release gives the turn.
if redis.call('EXISTS', K) == 1 then return 1 end
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/line.lua
-- @include part/serve.lua
serve()
return budget > 0 and 1 or -2
