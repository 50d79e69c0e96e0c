-- queue_limit: sets how much is handed out, in place of what was set before.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, most in flight (0: no limit), deliveries (0: no limit), in how many us, where to continue
--       counting what is in flight ('0' at first)
-- Returns where to continue, '0' when it is done: a step counts some 1,000 that are in flight.
-- Atomic so that every lease is counted. Works when out of memory.
local queue, channel, keep, most, deliveries, per, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/limit.lua
-- @include queue/part/insert.lua
tick()
-- While leases of before are counted, those of now are counted too, and nothing is limited. Two clients that do this at once
-- may count too few, until those leases end.
local COUNTING = '4294967295'
local was, again = string.match(marks, 'i(%d+)') or '0', '0'
if most == '0' or was == '0' or (was == COUNTING and from == '0') then
  redis.call('DEL', L) -- works without memory, and lets the next ones work
end
if most ~= '0' and (was == '0' or was == COUNTING) then
  local found = redis.call('HSCAN', R, from, 'COUNT', 1000)
  again = found[1]
  for i = 1, #found[2], 2 do
    local id = found[2][i]
    local ends = tonumber(redis.call('ZSCORE', T, id) or 0)
    if ends % 2 == 1 and ends > 2 * now + 1 then redis.call('ZADD', L, (ends - 1) / 2, id) end
  end
  redis.call('PEXPIRE', L, LONGEST)
end
local rate = string.match(marks, 'r[%d,]+') or ''
marks, clock = string.find(marks, 'p', 1, true) and 'p' or '', 0 -- with a new end of the counters' life
if again ~= '0' then
  marks = marks .. 'i' .. COUNTING .. rate
else
  if most ~= '0' then marks = marks .. 'i' .. most end
  if deliveries ~= '0' then marks = string.format('%sr%s,%s,0', marks, deliveries, per) end
end
save()
if marks ~= '' then redis.call('ZADD', X, 0, queue) end
watch_over()
return again
