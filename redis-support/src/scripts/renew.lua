-- renew: makes plain leases last, each if its token still holds it.
-- KEYS  one lock each, at most a few hundred
-- ARGV  token, ttl ms: a pair for each key
-- Returns for each key the ms that the lease now lasts, or 0 when it is lost. Never shortens, never revives.
-- Atomic because a lease may end and another begin between the comparison and the extension.
local values = redis.call('MGET', unpack(KEYS))
local kept = {}
for i, key in ipairs(KEYS) do
  local token, ttl, value = ARGV[2 * i - 1], tonumber(ARGV[2 * i]), values[i]
  if value and string.sub(value, 1, 23) == token .. ';' then
    local left = redis.call('PTTL', key)
    if left < ttl then
      redis.call('PEXPIRE', key, ttl)
      left = ttl
    end
    kept[i] = left
  else
    kept[i] = 0
  end
end
return kept
