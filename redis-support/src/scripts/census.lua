-- census: what can be seen of several locks, ours or foreign clients'.
-- KEYS  for each lock K and W: the lock, its presence
-- ARGV  none
-- Returns for each lock what look returns. Reads only.
-- Atomic so that holder, lease and depth of a lock belong together.
-- @include part/now.lua
-- @include part/look.lua
local seen = {}
for i = 1, #KEYS, 2 do seen[#seen + 1] = look(KEYS[i], KEYS[i + 1]) end
return seen
