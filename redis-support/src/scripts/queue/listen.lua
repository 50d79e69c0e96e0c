-- queue_listen: remembers a client that waits, so that it is woken.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  keep ms, client
-- Returns 1.
-- Atomic so that the oldest of too many is the one that is forgotten. Works when out of memory.
local keep, client = ARGV[1], ARGV[2]
local queue, channel = '', '' -- no client is woken
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
-- @include queue/part/listen.lua
tick()
redis.call('HDEL', O, '') -- works without memory, and lets the next ones work
listen(client, -2) -- it asks next; a push before that wakes it first
return 1
