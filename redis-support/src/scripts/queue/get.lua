-- queue_get: what can be seen of a message.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  id ('#' and number in 14 hex, or 'n' and name)
-- Returns {} when there is none, else {now us, number (14 hex), 1 scheduled|2 ready|3 in flight|4 dead, its time in us,
--         record, state ('' before the first delivery)}. Reads only.
-- Atomic so that place, payload and state belong together.
local keep, id = '0', ARGV[1]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/find.lua
-- @include queue/part/look_up.lua
tick()
local found, record = look_up(id)
if not found then return {} end
local place, score = find(found)
if not place then return {} end
local state = redis.call('HGET', R, found) or redis.call('HGET', O, found) or ''
local at = math.floor(math.max(math.min(place == 'T' and score / 2 or score, 4503599627370496), 0))
return {now, found, standing(place, score), at, record, state}
