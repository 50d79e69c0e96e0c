-- queue_stats: counts, lag and the next due time.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  none
-- Returns {scheduled, ready, in flight, dead, lag us, us until the next due (-1: none), paused 1|0, most in
--         flight (0: no limit), deliveries (0: no limit), in how many us}. Reads only.
-- Atomic so that each message is counted once. Ended leases are told from messages that are due among the first 2000
-- that are due, and the next due time is looked for among the next 2000 (beyond, it is the least that it can be), so
-- that the run is short.
local LOOKS, keep = 2000, '0'
