-- renew: makes plain leases last, each if its token still holds it.
-- KEYS  one lock each, at most a few hundred
-- ARGV  ttl ms, then the token for each key
-- Returns the ttl when every lease lasts for that now; else for each key the ms that its lease lasts, or 0 when it is
--         lost. Never shortens, never revives.
-- Atomic because a lease may end and another begin between the comparison and the extension.
local ttl = ARGV[1]
-- @include part/lengthen.lua
-- @include part/answer.lua
-- MGET returns nothing for a key of another type: such a lease counts as lost and fails no other one.
local values, others = redis.call('MGET', unpack(KEYS)), {}
for i, value in ipairs(values) do
  if value and string.sub(value, 1, 22) == ARGV[i + 1] then others[i] = lengthen(KEYS[i]) else others[i] = 0 end
end
return answer(others, #KEYS)
