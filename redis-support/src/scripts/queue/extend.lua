-- queue_extend: makes leases last, each if it has not ended and its receipt is the valid one.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  keep ms, then for each: number (14 hex) and fence (14 hex) as one, lease us
-- Returns for each 1 when it lasts as long as asked or longer, 0 when the receipt is stale. Never shortens or revives.
-- Atomic because a lease may end and another begin between the comparison and the extension. Works when out of memory.
local keep = ARGV[1]
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
tick()
local ids, answers = {}, {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = string.sub(ARGV[i], 1, 14) end
local states = redis.call('HMGET', R, unpack(ids))
redis.call('HDEL', R, '') -- works without memory, and lets the next ones work
for i, id in ipairs(ids) do
  local ends = redis.call('ZSCORE', T, id)
  answers[i] = 0
  if states[i] and ends and string.sub(states[i], 12, 25) == string.sub(ARGV[2 * i], 15, 28) then
    ends = tonumber(ends)
    -- An ended lease is not revived: the next receive may hand the message to another client.
    if ends > 2 * now + 1 then
      local asked = 2 * (now + tonumber(ARGV[2 * i + 1])) + 1
      if asked > ends then
        redis.call('ZADD', T, asked, id)
        if string.find(marks, 'i', 1, true) then
          redis.call('ZADD', L, (asked - 1) / 2, id)
          redis.call('PEXPIRE', L, LONGEST)
        end
      end
      answers[i] = 1
    end
  end
end
return answers
