-- queue_dead_list: dead letters in the order of their deaths.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  time of death in us and number (14 hex) that the list goes on behind, max (at most 256)
-- Returns {now us, 1 when there are more, else 0, then for each: number (14 hex), time of death us, record, state}.
--         Stops after 4 MiB. Reads only.
-- Atomic so that payload and state belong together.
local keep, BYTES = '0', 4194304
local from, number_before, max = ARGV[1], ARGV[2], tonumber(ARGV[3])
