-- queue_dead_list: dead letters in the order of their deaths.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  time of death in us and number (14 hex) that the list continues behind, max (at most 256)
-- Returns {now us, 1 when there are more, else 0, then for each: number (14 hex), time of death us, record, state}.
--         Stops after 4 MiB. Reads only.
-- Atomic so that payload and state belong together.
local keep, BYTES = '0', 4194304
local from, number_before, max = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/behind.lua
tick()
local skip = behind(D, from, number_before)
local out, bytes, listed, looks = {now, 0}, 0, 0, 1000
while looks > 0 do
  local found = redis.call('ZRANGE', D, from, '+inf', 'BYSCORE', 'LIMIT', skip, max + 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if listed == max or bytes >= BYTES then
      out[2] = 1
      return out
    end
    local id, at = found[i], found[i + 1]
    if is_number(id) and string.find(at, '^%d+$') then -- anything else is no letter, and is passed over
      local record = redis.call('HGET', M, id) or ''
      local n = #out
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = id, at, record, redis.call('HGET', O, id) or ''
      listed, bytes = listed + 1, bytes + string.len(record)
    end
  end
  if #found < 2 * (max + 1) then break end
  skip, looks = skip + max + 1, looks - max - 1
end
return out
