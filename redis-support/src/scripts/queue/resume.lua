-- queue_resume: ends a pause, and wakes as many who wait as there is work for.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms
-- Returns 1.
-- Atomic so that no woken client finds the pause. Works when out of memory.
local queue, channel, keep = ARGV[1], ARGV[2], ARGV[3]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
tick()
redis.call('HDEL', O, '') -- works without memory, and lets the next ones work
marks, clock = string.gsub(marks, 'p', ''), 0 -- with a new end of the counters' life
save()
watch_over()
return 1
