-- inspect: what can be seen of a lock, ours or a foreign client's.
-- KEYS  K lock, W presence
-- ARGV  none
-- Returns {waiters, now ms, 'none'} | {…, 'string', pttl, value} | {…, 'hash', pttl, fence, since, label, fields, owner}. Reads only.
-- Atomic so that holder, lease and depth belong together.
local K, W = KEYS[1], KEYS[2]
