-- queue_give_turn: makes a parked message due, with a hold on the lock that it is parked behind.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, id ('#' and number in 14 hex, or 'n' and name), the turn as it is stored
-- Returns 1 due; 2 the queue is paused, 0 not parked (any more): nothing touched.
-- Atomic because the message may be handed out between the look and the move.
local queue, channel, keep, id, turn = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
-- @include queue/part/look_up.lua
tick()
if string.find(marks, 'p', 1, true) then return 2 end
local found, record = look_up(id)
local score = found and tonumber(redis.call('ZSCORE', T, found) or 1)
if not found or score % 2 == 1 then return 0 end
local state = redis.call('HGET', O, found) or first_state(record)
if string.sub(state, 9, 9) ~= 'P' or string.sub(state, 11, 11) ~= '-' then return 0 end
redis.call('HSET', O, found, string.sub(state, 1, 25) .. turn .. reason_of(state))
-- In the place that it would have if it had not waited: before what was pushed later.
insert(found, 2 * math.min(tonumber(found, 16), now))
wake_if_sooner()
return 1
