-- queue_reschedule: gives a message that waits another due time.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, id ('#' and number in 14 hex, or 'n' and name), delay us
-- Returns 1 moved; 3 in flight, 4 dead, 0 not found: nothing touched.
-- Atomic because the message may be handed out between the look and the move.
local queue, channel, keep, id, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
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
local place, score
if found then place, score = find(found) end
if not place then return 0 end
local state = standing(place, score)
if state == 3 or state == 4 then return state end
-- The first write, which a server out of memory refuses: nothing has changed then.
insert(found, 2 * (now + delay))
local _, key = about(record)
if place == 'H' then unhold(found, key, score) end
-- The lease of its last delivery has ended: that receipt must not settle the message any more.
if place == 'T' and score % 2 == 1 then
  local last = redis.call('HGET', R, found) or first_state(record)
  redis.call('HDEL', R, found)
  redis.call('HSET', O, found, after(last, attempt_of(last), 'L', '-'))
end
depart(found, record)
wake_if_sooner()
return 1
