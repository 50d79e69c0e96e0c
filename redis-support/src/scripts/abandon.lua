-- abandon: undoes whatever a token asked for (lease, place in the queue) and refuses what it may still ask for.
-- KEYS  K lock, X tombstone of the token, Q queue, W presence, D direct, F fence counter
-- ARGV  token, member, tombstone ms, turn as its part says
-- Returns 1; -2 when pass has to go on.
-- Atomic because a request of the same token between two steps would leave a lock that nobody owns. Works when out of
-- memory: a script that has begun to write with commands that free memory may go on to write.
local K, X, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, turn = ARGV[2], ARGV[4]
