-- acquire: grants a plain lock to a token, or says that it is busy and keeps the token's place in the queue.
-- KEYS  K lock, F fence counter, X tombstone of the token, Q queue, W presence, D direct
-- ARGV  token, ttl ms, wait as part/join says; and as far as they are not these: label '', fences clock|counter 'clock',
--       keep ms '0', floor '0'
-- Returns the first of eight fences, granted now while there are no waiters; {3, fence, ahead as in the value} with one; {1, fence, 1, ttl
--         ms, fences} granted now while there are waiters; {2, fence, 1, ttl ms, fences} the token
--         holds it since an earlier request, nothing changed; {1, fence, 1, ttl ms, fences} handed over before, and made
--         to last now; {0, position|-1, recheck ms|-1, now µs} busy;
--         {-1} the token was abandoned; {-2} the queue is full; {-6, key, what it holds} the fence counter is damaged, or
--         the floor, which is shown then, is too far ahead of the server's clock.
-- Atomic because the check that the lock is free, and that no waiter is before us, must hold when it is taken, and because no two
-- grants may read the same counter.
local K, F, X, Q = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, wait, label, fences, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4] or '', ARGV[5] or 'clock', ARGV[6] or '0'
local floor = ARGV[7] or '0'
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/grant.lua
