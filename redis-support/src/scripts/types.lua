-- types: of which type each key is. Asked for when a script met one of another type than it should be.
-- KEYS  those of the script
-- ARGV  none
-- Returns the types, in order. Reads only.
-- Atomic so that they belong together.
local types = {}
for i, key in ipairs(KEYS) do types[i] = redis.call('TYPE', key).ok end
return types
