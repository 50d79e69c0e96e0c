-- renew_hold: makes re-entrant leases last, each if its owner still has the hold with this fence.
-- KEYS  one lock each, at most a few hundred
-- ARGV  owner, fence, ttl ms: a triple for each key
-- Returns for each key the ms that the lease now lasts, or 0 when it is lost. Never shortens, never revives.
-- Atomic for the reason of renew.
local kept = {}
for i, key in ipairs(KEYS) do
  local owner, fence, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  local hold = redis.pcall('HMGET', key, 'o', 'f')
  local bad = refusal(hold, 'HMGET')
  if bad then return bad end
  if not hold.err and hold[1] == owner and hold[2] == fence then
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
