-- queue_dead_redrive: makes dead letters wait again, with all attempts before them.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, delay us, then 'ids' and ids ('#' and number in 14 hex, or 'n' and name), or
--       'oldest' and how many (at most 256)
-- Returns {moved, 1 when there are more than asked for, else 0}.
-- Atomic because a letter must not be in two places, or in none.
local queue, channel, keep, delay = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
