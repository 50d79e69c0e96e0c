-- queue_limit: sets how much is handed out, in place of what was set before.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, most in flight (0: no limit), deliveries (0: no limit), in how many us, where to go on
--       counting what is in flight ('0' at first)
-- Returns where to go on, '0' when it is done: a step counts some 1,000 that are in flight.
-- Atomic so that every lease is counted. Works when out of memory.
local queue, channel, keep, most, deliveries, per, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
