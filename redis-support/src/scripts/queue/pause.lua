-- queue_pause: stops deliveries.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue
-- Returns 1.
-- Atomic so that a paused queue is always listed.
local queue, keep = ARGV[1], '0'
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
tick()
if not string.find(marks, 'p', 1, true) then marks = marks .. 'p' end
save()
redis.call('ZADD', X, 0, queue)
return 1
