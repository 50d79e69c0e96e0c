-- Part: room(), room_at(), count() and uncount(). Needs keys and clock. The marks of a limited queue are 'i' and the most
-- messages in flight; 'r' and deliveries, in how many us, and when the bucket of as many tokens is full again, in us. L has
-- the leases of a queue with 'i', by their ends in us, and ends itself after the longest of them: what is left of ended ones is
-- removed by the next receive, if there is one.

-- From one token to the next in us, the most tokens, and when they are there; nil when there is no rate.
local function bucket()
  local deliveries, per, full_at = string.match(marks, 'r(%d+),(%d+),(%d+)')
  if deliveries then return math.ceil(per / deliveries), tonumber(deliveries), tonumber(full_at) end
end

-- How many more may be in flight; less than none when the limit was set below what was.
local function places()
  local most = string.match(marks, 'i(%d+)')
  return most and most - redis.call('ZCOUNT', L, string.format('(%.0f', now), '+inf') or math.huge
end

-- How many deliveries are allowed.
local function room()
  local free, interval, most, full_at = math.max(places(), 0), bucket()
  if not interval then return free end
  return math.min(free, math.max(most - math.ceil(math.max(full_at - now, 0) / interval), 0))
end

-- When a delivery is allowed, as far as is known now.
local function room_at()
  local at, interval, most, full_at = 0, bucket()
  if interval then at = full_at - interval * (most - 1) end
  local free = places()
  if free > 0 then return at end
  local from = string.format('(%.0f', now)
  local lease = redis.call('ZRANGE', L, from, '+inf', 'BYSCORE', 'LIMIT', math.abs(free), 1, 'WITHSCORES')
  return math.max(at, tonumber(lease[2]))
end

-- These are handed out, until `ends`; leases that have ended are counted no more.
local function count(ids, ends)
  local interval, _, full_at = bucket()
  if interval then
    full_at = string.format('%.0f', math.max(full_at, now) + interval * #ids)
    marks = string.gsub(marks, '(r%d+,%d+,)%d+', '%1' .. full_at)
  end
  if not string.find(marks, 'i', 1, true) then return end
  local ended = redis.call('ZRANGE', L, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 512)
  if #ended > 0 then redis.call('ZREM', L, unpack(ended)) end
  local leases = {}
  for i, id in ipairs(ids) do leases[2 * i - 1], leases[2 * i] = string.format('%.0f', ends), id end
  redis.call('ZADD', L, unpack(leases))
  redis.call('PEXPIRE', L, LONGEST)
end

-- These are in flight no more. Returns whether that makes room.
local function uncount(ids)
  return string.find(marks, 'i', 1, true) and redis.call('ZREM', L, unpack(ids)) > 0
end
