-- queue_purge: removes messages that wait, the soonest first; their names are free.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, Z pause, C clients that wait, X all queues
-- ARGV  queue, channel prefix, keep ms, max (at most 256), how many messages of the timeline to pass over
-- Returns {removed, how many of the timeline to pass over next (-1: there is no more)}. Looks at 1000.
-- Atomic because a message may be handed out between the look and the removal. Works when out of memory.
local queue, channel, keep, max, skip = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
