-- queue_dead_redrive: makes dead letters wait again, with all attempts before them.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, delay us, then 'ids' and ids ('#' and number in 14 hex, or 'n' and name), or
--       'oldest' and how many (at most 256)
-- Returns {moved, 1 when there are more than asked for, else 0}.
-- Atomic because a letter must not be in two places, or in none.
local queue, channel, keep, delay = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
-- @include queue/part/look_up.lua
-- @include queue/part/selected.lua
-- @include queue/part/until_when.lua
tick()
local numbers, more = selected(5)
local moved = 0
for _, id in ipairs(numbers) do
  local record = redis.call('HGET', M, id)
  -- The removal decides: a letter that is named twice is moved once.
  if record and is_number(id) and redis.call('ZREM', D, id) == 1 then
    moved = moved + 1
    local state = redis.call('HGET', O, id)
    local why, _, _, _, expires = read(record)
    -- It lives for ever from now on: by its old end it would die again at once.
    if not why and expires > 0 then redis.call('HSET', M, id, until_when(record, 0)) end
    if not state or flaw_of_state(state, record) then state = first_state(record) end
    redis.call('HSET', O, id, after(state, 0, 'D', '-'))
    insert(id, 2 * (now + delay))
  end
end
if moved > 0 then redis.call('ZADD', X, 0, queue) end
wake_if_sooner()
return {moved, more}
