-- queue_purge: removes messages that wait, the soonest first; their names are free.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, max (at most 256), number (14 hex) of the newest message that is removed ('' for
--       the newest of all), score in T from which to look
-- Returns {removed}, and when there may be more also the newest number and the score from which to look next.
-- Atomic because a message may be handed out between the look and the removal. Works when out of memory.
local queue, channel, keep, max, newest, from = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
