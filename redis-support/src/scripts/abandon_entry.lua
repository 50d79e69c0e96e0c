-- abandon_entry: undoes whatever the token of one entry asked for, as abandon does for plain locks.
-- KEYS  K lock, X tombstone of the token, Q queue, W presence, D direct, F fence counter
-- ARGV  token, member, tombstone ms, turn as its part says, owner
-- Returns 1; -2 when pass has to continue.
-- Atomic, and fit for a server out of memory, for the reasons of abandon.
local K, X, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, turn = ARGV[2], ARGV[4]
-- @include part/refusal.lua
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/line.lua
-- @include part/serve.lua
-- @include part/bury.lua
local head = redis.call('ZRANGE', Q, '0', '0')[1]
local freed = false
local hold = redis.pcall('HGET', K, 'o')
local bad = refusal(hold, 'HGET')
if bad then return bad end
if hold == ARGV[5] and redis.call('HDEL', K, '#' .. ARGV[1]) == 1 then
  -- Four fields describe the hold: without a further one it has no entry left.
  freed = redis.call('HLEN', K) == 4
  if freed then redis.call('DEL', K) end
end
drop(member)
redis.call('SET', X, '1', 'PX', ARGV[3])
if (freed or head == member) and redis.call('EXISTS', K) == 0 then serve() end
return budget > 0 and 1 or -2
