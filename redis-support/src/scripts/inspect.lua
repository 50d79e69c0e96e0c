-- inspect: what can be seen of a lock, ours or a foreign client's.
-- KEYS  K lock, W presence
-- ARGV  none
-- Returns what look returns. Reads only.
-- Atomic so that holder, lease and depth belong together.
local K, W = KEYS[1], KEYS[2]
-- @include part/now.lua
-- @include part/look.lua
local seen = look(K, W)
if seen[4] and not seen[5] then redis.call('HLEN', K) end -- no lock, and the error says so
return seen
