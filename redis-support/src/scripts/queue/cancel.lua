-- queue_cancel: removes a message that waits; its name is free at once.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, id ('#' and number in 14 hex, or 'n' and name)
-- Returns 1 removed; 3 in flight, 4 dead, 0 not found: nothing touched.
-- Atomic because the message may be handed out between the look and the removal. Works when out of memory.
local queue, channel, keep, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
-- @include queue/part/key.lua
-- @include queue/part/find.lua
-- @include queue/part/remove.lua
-- @include queue/part/look_up.lua
tick()
local found, record = look_up(id)
if not found then return 0 end
local place, score = find(found)
local state = standing(place, score)
if state == 3 or state == 4 then return state end
remove(found, record, place, score)
if string.sub(id, 1, 1) == 'n' then redis.call('HDEL', I, id) end -- a damaged record does not have its name
wake_if_sooner()
return 1
