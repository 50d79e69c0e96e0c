-- queue_dead_purge: removes dead letters; their names are free.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, then 'ids' and ids ('#' and number in 14 hex, or 'n' and name), or 'oldest' and
--       how many (at most 256)
-- Returns {removed, 1 when there are more than asked for, else 0}.
-- Atomic because a letter may be redriven between the look and the removal. Works when out of memory.
local queue, channel, keep = ARGV[1], ARGV[2], ARGV[3]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
-- @include queue/part/key.lua
-- @include queue/part/remove.lua
-- @include queue/part/look_up.lua
-- @include queue/part/selected.lua
tick()
local numbers, more = selected(4)
local removed = 0
for _, id in ipairs(numbers) do
  local record = redis.call('HGET', M, id)
  if redis.call('ZSCORE', D, id) then
    removed = removed + 1
    remove(id, record or '', 'D')
  end
end
return {removed, more}
