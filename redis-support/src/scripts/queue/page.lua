-- queue_page: messages that wait, or that are in flight, in the order of their times; held ones after all others.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  'waiting' or 'flying', set ('T' or 'H'), score in it and number (14 hex) that the list continues behind, max (at most
--       256)
-- Returns {now us, set, score and number of the next page ('' when this is the last), then for each: number (14 hex), 1
--         scheduled|2 ready|3 in flight, its time in us, record, state ('' before the first delivery)}. Looks at 4000
--         messages, and stops after 4 MiB. Reads only.
-- Atomic so that place, payload and state belong together.
local LOOKS, BYTES, keep = 4000, 4194304, '0'
local flying, set, from, number_before, max = ARGV[1] == 'flying', ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- @include queue/part/form.lua
-- @include queue/part/find.lua
-- @include queue/part/behind.lua
tick()
local key, edge, upto = set == 'T' and T or H, 2 * now + 1, 9007199254740991
if flying then -- no lease lasts longer than a day
  if tonumber(from) <= edge then from, number_before = string.format('%.0f', edge + 1), '' end
  upto = edge + 2 * 86400000000
end
upto = string.format('%.0f', upto)
local skip = behind(key, from, number_before)
local found = redis.call('ZRANGE', key, from, upto, 'BYSCORE', 'LIMIT', skip, LOOKS, 'WITHSCORES')
local out, bytes, listed, i, last = {now, '', 0, '0'}, 0, 0, 1, nil
while found[i] and listed < max and bytes < BYTES do
  local id, score = found[i], tonumber(found[i + 1])
  local state = standing(set, score)
  local sound = is_number(id) and score % 1 == 0
  if sound then last = i end
  if sound and (state == 3) == flying then
    local record = redis.call('HGET', M, id)
    if record then
      local n = #out
      out[n + 1], out[n + 2], out[n + 3] = id, state, set == 'T' and math.floor(score / 2) or score
      out[n + 4], out[n + 5] = record, redis.call('HGET', R, id) or redis.call('HGET', O, id) or ''
      listed, bytes = listed + 1, bytes + string.len(record)
    end
  end
  i = i + 2
end
if found[i] or #found == 2 * LOOKS then
  out[2] = set
  if last then
    out[3], out[4] = tonumber(found[last + 1]), found[last]
  else -- a member that is no message is no place either: the page continues behind all of this score
    out[3] = math.floor(tonumber(found[i - 1])) + 1
  end
elseif set == 'T' and not flying and redis.call('ZCARD', H) > 0 then
  out[2] = 'H'
end
return out
