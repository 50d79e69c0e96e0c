-- enter: takes a re-entrant lock for an owner, or adds an entry to the hold that the owner has.
-- KEYS  K lock, F fence counter, X tombstone of the token, Q queue, W presence, D direct
-- ARGV  token, ttl ms, wait as its part says (direct 0), owner, max depth; and as far as they are not these: label '',
--       fences clock|counter 'clock', keep ms '0', floor '0'
-- The lock is a HASH: o owner, f fence, s since (ms), l label, and a field '#<token>' for each entry. Entries are a
-- set, so a repeated frame changes nothing and an undone entry leaves the exact rest.
-- Returns {1, fence, depth, kept ms} entered; {2, fence, depth} this entry exists, nothing changed;
--         {0, position|-1, recheck ms|-1, now µs} busy; {-1} the token was abandoned; {-2} the queue is full; {-3} too deep;
--         {-6, key, what it holds} the fence counter is damaged, or the floor, which is shown then, is too far ahead;
--         {-8, key, what it holds} the fence of the owner's hold is damaged.
-- Atomic for the reasons of acquire.
local K, F, X, Q, W, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, ttl, wait, owner, max_depth = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local label, fences, keep, floor = ARGV[6] or '', ARGV[7] or 'clock', ARGV[8] or '0', ARGV[9] or '0'
