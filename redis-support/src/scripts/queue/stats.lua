-- queue_stats: counts, lag and the next due time.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  none
-- Returns {scheduled, ready, in flight, dead, lag us, us until the next due (-1: none), paused 1|0, most in
--         flight (0: no limit), deliveries (0: no limit), in how many us}. Reads only.
-- Atomic so that each message is counted once. It looks for ended leases among the first 2000 due entries,
-- and the next due time is looked for among the next 2000 (beyond, it is the least that it can be), so
-- that the run is short.
local LOOKS, keep = 2000, '0'
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
tick()
local edge = 2 * now + 1
local due = redis.call('ZRANGE', T, '-inf', edge, 'BYSCORE', 'LIMIT', 0, LOOKS, 'WITHSCORES')
local ended = 0
for i = 2, #due, 2 do
  if tonumber(due[i]) % 2 == 1 then ended = ended + 1 end
end
local ready = redis.call('ZCOUNT', T, '-inf', edge)
-- R keeps a delivery whose lease has ended until the next receive, and the message counts as ready meanwhile.
local in_flight = redis.call('HLEN', R) - ended
local scheduled = math.max(redis.call('ZCARD', T) - ready - in_flight, 0)
local oldest = due[2] and math.floor(tonumber(due[2]) / 2) or now
local held = redis.call('ZRANGE', H, 0, 0, 'WITHSCORES')[2]
if held and tonumber(held) < oldest then oldest = tonumber(held) end
local next_due = -1
local page = 16
while scheduled > 0 and next_due < 0 do
  local later = redis.call('ZRANGE', T, edge + 1, '+inf', 'BYSCORE', 'LIMIT', 0, page, 'WITHSCORES')
  for i = 2, #later, 2 do
    local score = tonumber(later[i])
    if score % 2 == 0 or (i == #later and page == LOOKS) then
      next_due = math.min(math.floor(score / 2), 4503599627370496) - now
      break
    end
  end
  if page == LOOKS or #later < 2 * page then break end
  page = LOOKS
end
local deliveries, per = string.match(marks, 'r(%d+),(%d+)')
return {scheduled, ready + redis.call('ZCARD', H), in_flight, redis.call('ZCARD', D), now - oldest, next_due,
  string.find(marks, 'p', 1, true) and 1 or 0, tonumber(string.match(marks, 'i(%d+)')) or 0, tonumber(deliveries) or 0,
  tonumber(per) or 0}
