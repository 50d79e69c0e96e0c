-- acquire: grants a plain lock to a token, or says that it is busy and keeps the token's place in the queue.
-- KEYS  K lock, F fence counter, X tombstone of the token, Q queue, W presence
-- ARGV  token, ttl ms, fences clock|counter, keep ms, label, member, presence ms (0: do not queue), max waiters,
--       claim ms, channel prefix
-- Returns {1, fence} granted now; {2, fence} the token holds it since an earlier request, nothing changed;
--         {0, position|-1, recheck ms|-1} busy; {-1} the token was abandoned; {-2} the queue is full.
-- Atomic because the check that nobody has the lock, or is before us, must hold when it is taken, and because no two
-- grants may read the same counter.
local K, F, X, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, ttl, fences, keep, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
