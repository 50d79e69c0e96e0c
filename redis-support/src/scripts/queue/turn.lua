-- queue_turn: ends deliveries, then hands out messages that are due, with a lease each.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, fences clock|counter, most dead letters, client that waits ('' for none), max
--       (0: do not receive), lease us, floor of the fences, then the settlements, each as the part of settling says
-- Returns {answers of the settlements, {} or what the part of receiving says}; the floor alone, if it is more than a day
-- ahead of the clock: nothing was done.
-- Atomic because a receipt must be valid when it is settled, and no message may be handed out twice. Works when out of
-- memory: the first write of each step frees some.
local queue, channel, keep, fences = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local dead_cap, client, max, lease = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local floor = tonumber(ARGV[9])
