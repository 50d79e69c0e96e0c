-- permit_abandon: undoes every request of a token (hold, place in the line) and refuses those that arrive later.
-- KEYS  R record, H ends of leases, G fences, Q line, W presence, D terms, F fence counter, X tombstone of the token
-- ARGV  token, turn as its part says, member, tombstone ms
-- Returns {1, more}; {-9} not finished, ask again. more is 1 if permit_pass has to continue.
-- Atomic because a request of the same token between two steps would leave a hold without an owner. Works when out of
-- memory: deletions come first.
local R, H, G, Q, W, D, F, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local token, turn, member = ARGV[1], ARGV[2], ARGV[3]
local seen = redis.call('HMGET', R, 'u', 'g')
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
redis.call('ZREM', Q, member)
redis.call('SET', X, '1', 'PX', ARGV[4])
-- @include permit/part/record.lua
-- @include permit/part/serve.lua
drop(member, '#')
if not settled then return {-9} end
local hold = hold_of(token)
if hold then remove(token, hold.weight) end
serve()
return {1, more}
