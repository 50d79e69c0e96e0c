-- force_release: takes the lock from whoever holds it, ours or foreign, and wakes the first live waiter.
-- KEYS  K lock, Q queue, W presence
-- ARGV  claim ms, channel prefix
-- Returns 1 when somebody held it, 0 when nobody did. The fence counter stays.
-- Atomic so that the woken waiter is the first one at the moment of the deletion.
local K, Q, W = KEYS[1], KEYS[2], KEYS[3]
local claim, channel = tonumber(ARGV[1]), ARGV[2]
if redis.call('DEL', K) == 0 then return 0 end
