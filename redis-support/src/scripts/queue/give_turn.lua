-- queue_give_turn: makes a parked message due, with a hold on the lock that it is parked behind.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, id ('#' and number in 14 hex, or 'n' and name), the turn as it is stored
-- Returns 1 due; 2 the queue is paused, 0 not parked (any more): nothing touched.
-- Atomic because the message may be handed out between the look and the move.
local queue, channel, keep, id, turn = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
