-- queue_page: messages that wait, or that are in flight, in the order of their times; held ones after all others.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  'waiting' or 'flying', set ('T' or 'H'), score in it and number (14 hex) that the list goes on behind, max (at most
--       256)
-- Returns {now us, set, score and number of the next page ('' when this is the last), then for each: number (14 hex), 1
--         scheduled|2 ready|3 in flight, its time in us, record, state ('' before the first delivery)}. Looks at 4000
--         messages, and stops after 4 MiB. Reads only.
-- Atomic so that place, payload and state belong together.
local LOOKS, BYTES, keep = 4000, 4194304, '0'
local flying, set, from, number_before, max = ARGV[1] == 'flying', ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
