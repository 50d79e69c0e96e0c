-- queue_reschedule: gives a message that waits another due time.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, id ('#' and number in 14 hex, or 'n' and name), delay us
-- Returns 1 moved; 3 in flight, 4 dead, 0 not found: nothing touched.
-- Atomic because the message may be handed out between the look and the move.
local queue, channel, keep, id, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
