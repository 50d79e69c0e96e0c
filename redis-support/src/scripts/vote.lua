-- vote: acquire, as a node of a quorum: with a counter of the name's own that follows the asking client's proposal.
-- KEYS  K lock, F fence counter of the name, X tombstone of the token, Q queue, W presence, D direct, V electorate
-- ARGV  token, ttl ms, wait as part/join says (direct 0), proposal (0: none), keep ms, electorate, seniority ms (0: the
--       node remembers); and if it is not empty: label
-- Returns what acquire returns, but no lock is handed over; {-4, electorate} the node votes in another one; {-5, ms} it restarted, and votes again
--         in so many ms.
-- Atomic for the reasons of acquire, and because a restart between the check of the node and the grant would make a
-- node vote that has just forgotten another vote.
local K, F, X, Q, V = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[7]
local token, ttl, wait, proposal, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local electorate, seniority, label = ARGV[6], tonumber(ARGV[7]), ARGV[8] or ''

if seniority > 0 then
  local info = redis.call('INFO', 'server')
  -- A difference of two clock readings in whole seconds: up to one second too much.
  local up = (tonumber(string.match(info, 'uptime_in_seconds:(%d+)') or '0') - 1) * 1000
  if up < seniority then return {-5, math.floor(seniority - math.max(up, 0))} end
end
-- Before the lock is touched: a vote for another electorate could complete a second majority.
local own = redis.call('GET', V)
if not own then
  redis.call('SET', V, electorate)
elseif own ~= electorate then
  return {-4, own}
end
-- @include part/now.lua
-- @include part/vote_fence.lua
-- @include part/grant.lua
