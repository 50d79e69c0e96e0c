-- force_release: takes the lock from its holder, ours or foreign, or from the hold with one fence alone; and gives the
-- turn to the first live waiter.
-- KEYS  K lock, Q queue, W presence, D direct, F fence counter
-- ARGV  turn as its part says; and if there is one: the fence that the hold is expected to have
-- Returns 1 when it was held, -2 when pass has to continue as well; 0 when it was free; -1 when it is not the expected hold,
--         nothing touched. The fence counter stays.
-- Atomic so that the hold is still the one that was compared when it is deleted, and the woken waiter the first one then.
-- @include part/refusal.lua
local K, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local turn, expected = ARGV[1], ARGV[2]
if expected then
  local value = redis.pcall('GET', K)
  local bad = refusal(value, 'GET')
  if bad then return bad end
  if not value then return 0 end
  local fence
  if type(value) == 'string' then
    fence = string.match(value, '^[%w_%-]+;.;(%d+);')
  else
    value = redis.pcall('HMGET', K, 'o', 'f')
    bad = refusal(value, 'HMGET')
    if bad then return bad end
    fence = not value.err and value[1] and value[2]
  end
  if fence ~= expected then return -1 end
end
if redis.call('DEL', K) == 0 then return 0 end
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/line.lua
-- @include part/serve.lua
serve()
return budget > 0 and 1 or -2
