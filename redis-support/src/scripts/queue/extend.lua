-- queue_extend: makes leases last, each if it has not ended and its receipt is the valid one.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  keep ms, then for each: number (14 hex) and fence (14 hex) as one, lease us
-- Returns for each 1 when it lasts as long as asked or longer, 0 when the receipt is stale. Never shortens or revives.
-- Atomic because a lease may end and another begin between the comparison and the extension. Works when out of memory.
local keep = ARGV[1]
