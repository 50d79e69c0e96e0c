-- force_release: takes the lock from whoever holds it, ours or foreign, and gives the turn to the first live waiter.
-- KEYS  K lock, Q queue, W presence, D direct, F fence counter
-- ARGV  turn as its part says
-- Returns 1 when somebody held it, -2 when pass has to go on as well; 0 when nobody did. The fence counter stays.
-- Atomic so that the woken waiter is the first one at the moment of the deletion.
local K, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local turn = ARGV[1]
if redis.call('DEL', K) == 0 then return 0 end
