-- queue_get: what can be seen of a message.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  id ('#' and number in 14 hex, or 'n' and name)
-- Returns {} when there is none, else {now us, number (14 hex), 1 scheduled|2 ready|3 in flight|4 dead, its time in us,
--         record, state ('' before the first delivery)}. Reads only.
-- Atomic so that place, payload and state belong together.
local keep, id = '0', ARGV[1]
