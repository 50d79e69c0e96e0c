-- permit_inspect: what can be seen of a semaphore or a read-write lock.
-- KEYS  R record, H ends of leases, G fences, W presence
-- ARGV  the most holders
-- Returns {weight of all holds, waiters, now µs, then for each of the first holders by fence: the end of its lease in µs, its
--         hold as permit/part/record says}. Reads only.
-- Atomic so that holds and waiters belong together.
local R, H, G, W, most = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])
-- @include part/now.lua
local used = tonumber(redis.call('HGET', R, 'u') or '0') or 0
local seen = {0, redis.call('ZCOUNT', W, '(' .. now, '+inf'), now_us}
-- Ended leases are still there.
local ended = redis.call('ZRANGE', H, '-inf', now, 'BYSCORE')
for _, token in ipairs(ended) do
  used = used - (tonumber(string.match(redis.call('HGET', R, token) or '', '^%d+;(%d+);') or '0'))
end
local tokens = most > 0 and redis.call('ZRANGE', G, '0', #ended + most - 1) or {}
for from = 1, #tokens, 256 do
  local texts = redis.call('HMGET', R, unpack(tokens, from, math.min(from + 255, #tokens)))
  for i, text in ipairs(texts) do
    local ends = tonumber(redis.call('ZSCORE', H, tokens[from + i - 1]) or '0')
    if ends > now_us and #seen < 3 + 2 * most then
      seen[#seen + 1] = ends
      seen[#seen + 1] = text or ''
    end
  end
end
seen[1] = used
return seen
