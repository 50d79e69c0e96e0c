-- renew_hold: makes re-entrant leases last, each if its owner still has the hold with this fence.
-- KEYS  one lock each, at most a few hundred
-- ARGV  ttl ms, then owner and fence for each key
-- Returns what renew returns. Never shortens, never revives.
-- Atomic for the reason of renew.
-- @include part/refusal.lua
local ttl = ARGV[1]
-- @include part/lengthen.lua
-- @include part/answer.lua
local others = {}
for i, key in ipairs(KEYS) do
  local hold = redis.pcall('HMGET', key, 'o', 'f')
  local bad = refusal(hold, 'HMGET')
  if bad then return bad end
  -- The fence as well: the owner may have lost this hold and begun another one.
  local ours = not hold.err and hold[1] == ARGV[2 * i] and hold[2] == ARGV[2 * i + 1]
  if ours then others[i] = lengthen(key) else others[i] = 0 end
end
return answer(others, #KEYS)
