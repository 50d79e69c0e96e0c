-- release: ends a plain lease if the token holds it, and gives the turn to the first live waiter.
-- KEYS  K lock, Q queue, W presence, D direct, F fence counter
-- ARGV  token, turn as its part says
-- Returns 1 released; -2 released, and pass has to continue; 0 not held by the token, nothing touched.
-- Atomic because the lock may change hands between the comparison and the deletion. Works when out of memory: the
-- deletion comes first.
local K = KEYS[1]
local value = redis.pcall('GET', K)
local held = type(value) == 'string' and string.sub(value, 1, 22) == ARGV[1]
if held then
  redis.call('DEL', K)
  if string.byte(value, 24) == 45 then return 1 end -- '-': no waiters
end
-- Only a contended lock, or one that is not ours, needs the rest: making its functions costs as much as a call.
-- @include part/refusal.lua
if not held then return refusal(value, 'GET') or 0 end
local Q, W, D, F, turn = KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2]
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/line.lua
-- @include part/serve.lua
serve()
return budget > 0 and 1 or -2
