-- permit_renew: makes leases on permits last, each if its token still has it.
-- KEYS  for each hold R record, H ends of leases, G fences
-- ARGV  ttl ms, then the token of each hold
-- Returns what renew returns, for each hold. Never shortens, never revives, and looks at no other hold.
-- Atomic because a lease may end between the look and the extension. Works when out of memory: the first write of all is one
-- that needs none, and the others replace numbers.
local ttl = ARGV[1]
-- @include part/refusal.lua
-- @include part/answer.lua
-- @include part/now.lua
local SPAN = 30000000 -- in µs: a quarter of the shortest life of a key
local others, life, written = {}, math.max(120000, 4 * ttl), false
for i = 1, #ARGV - 1 do
  local H, token = KEYS[3 * i - 1], ARGV[i + 1]
  local ends = redis.pcall('ZSCORE', H, token)
  local bad = refusal(ends, 'ZSCORE')
  if bad then return bad end
  -- A key of another type holds no lease, and fails no other one.
  if not ends or type(ends) == 'table' or ends + 0 <= now_us then
    others[i] = 0
  else
    -- The keys last for two of these spans after the last look at least, so one look in each is enough.
    local number = math.floor((now_us + 1000 * ttl) / SPAN)
    local left = (not written or number > math.floor(ends / SPAN)) and redis.call('PTTL', H)
    if left and (not written or left < life / 2) then
      for key = 3 * i - 2, 3 * i do redis.call('PEXPIRE', KEYS[key], math.max(left, life)) end
      written = true
    end
    if now_us + 1000 * ttl > ends + 0 then
      redis.call('ZADD', H, 'XX', now_us + 1000 * ttl, token)
    else
      others[i] = math.floor((ends - now_us) / 1000)
    end
  end
end
return answer(others, #ARGV - 1)
