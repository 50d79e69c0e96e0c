-- queue_purge: removes messages that wait, the soonest first; their names are free.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, max (at most 256), number (14 hex) of the newest message that is removed ('' for
--       the newest of all), score in T from which to look
-- Returns {removed}, and when there may be more also the newest number and the score from which to look next.
-- Atomic because a message may be handed out between the look and the removal. Works when out of memory.
local queue, channel, keep, max, newest, from = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
-- @include queue/part/key.lua
-- @include queue/part/find.lua
-- @include queue/part/remove.lua
tick()
local LOOKS = 1000
if newest == '' then newest = string.format('%014x', math.max(number, now)) end
local last = tonumber(newest, 16) -- text is compared by the server's locale
local function look(set, score)
  return redis.call('ZRANGE', set, string.format('%.0f', score), '+inf', 'BYSCORE', 'LIMIT', 0, LOOKS, 'WITHSCORES')
end
local held, times = look(H, math.ceil(from / 2)), look(T, from)
local held_ends, times_end = #held < 2 * LOOKS, #times < 2 * LOOKS

local removed, h, t = 0, 1, 1
-- As long as it is known what comes next in both.
while removed < max and (held[h] or times[t]) and (held[h] or held_ends) and (times[t] or times_end) do
  local id, place, score
  local hold_at, time = tonumber(held[h + 1] or 'inf') or math.huge, tonumber(times[t + 1] or 'inf') or math.huge
  if 2 * hold_at < time then
    id, place, score, from = held[h], 'H', hold_at, 2 * hold_at
    h = h + 2
    if not redis.call('ZSCORE', H, id) then place, score = 'T', from end -- an earlier removal let it go
  else
    id, place, score, from = times[t], 'T', time, time
    t = t + 2
  end
  if (is_number(id) and tonumber(id, 16) > last) or (place == 'T' and standing(place, score) == 3) then
    from = from + 1 -- whatever else has this score is in flight as well, or newer still
  else
    local record = redis.call('HGET', M, id)
    if record then removed = removed + 1 end
    remove(id, record or '', place, score)
  end
end
wake_if_sooner()
if not held[h] and not times[t] and held_ends and times_end then return {removed} end
return {removed, newest, from}
