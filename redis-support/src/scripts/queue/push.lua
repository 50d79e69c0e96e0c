-- queue_push: stores messages, all or none.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, X all queues
-- ARGV  queue, channel prefix, keep ms, most messages (0: no limit), then for each message: delay us, name ('' for
--       none), record
-- Returns for each message its number (14 hex) when it is stored, or where the known one stands: 1 scheduled, 2 ready,
--         3 in flight, 4 dead, 5 settled; or -1 for all when the queue is full.
-- Atomic so that a batch is whole, payload and place belong together, and a name is given once. The first write is one
-- that a server out of memory refuses, so that it refuses all.
local queue, channel, keep, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
