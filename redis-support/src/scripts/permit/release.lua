-- permit_release: ends a hold if the token has one, and notifies the waiters that fit now.
-- KEYS  R record, H ends of leases, G fences, Q line, W presence, D terms, F fence counter
-- ARGV  token, turn as its part says
-- Returns 1 released or 0 not held, without waiters; {1|0, more} with some; {-9} nothing is decided, ask again. more is 1 if
--         permit_pass has to continue.
-- Atomic because the freed room belongs to the first waiters. Works when out of memory: deletions come first.
local R, H, G, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local token, turn = ARGV[1], ARGV[2]
local seen = redis.call('HMGET', R, 'u', 'g', token)
local alone = not seen[2] and redis.call('EXISTS', Q) == 0
if alone and not seen[3] then return 0 end
-- @include part/now.lua
if alone then
  local ends, weight = redis.call('ZSCORE', H, token), string.match(seen[3], '^%d+;(%d+);')
  local rest = weight and (tonumber(seen[1] or '') or 0) - weight
  if rest and rest >= 0 and ends and ends + 0 > now_us then
    if rest == 0 then
      redis.call('DEL', R, H, G)
    else
      redis.call('HDEL', R, token)
      redis.call('HSET', R, 'u', rest)
      redis.call('ZREM', H, token)
      redis.call('ZREM', G, token)
    end
    return 1
  end
end
redis.call('HDEL', R, '') -- a script that has begun to write with a deletion may continue to write
-- @include part/turn.lua
-- @include part/fence.lua
-- @include permit/part/record.lua
-- @include permit/part/serve.lua
if not settled then return {-9} end
local hold = hold_of(token)
if hold then remove(token, hold.weight) end
serve()
return {hold and 1 or 0, more}
