-- enter: takes a re-entrant lock for an owner, or adds an entry to the hold that the owner has.
-- KEYS  K lock, F fence counter, X tombstone of the token, Q queue, W presence, D direct
-- ARGV  token, ttl ms, wait as part/join says (direct 0), owner, max depth; and as far as they are not these: label '',
--       fences clock|counter 'clock', keep ms '0', floor '0'
-- The lock is a HASH: o owner, f fence, s since (ms), l label, and a field '#<token>' for each entry. Entries are a
-- set, so a repeated frame changes nothing and an undone entry leaves the exact rest.
-- Returns {1, fence, depth, kept ms} entered; {2, fence, depth} this entry exists, nothing changed;
--         {0, position|-1, recheck ms|-1, now µs} busy; {-1} the token was abandoned; {-2} the queue is full; {-3} too deep;
--         {-6, key, what it holds} the fence counter is damaged, or the floor, which is shown then, is too far ahead;
--         {-8, key, what it holds} the fence of the owner's hold is damaged.
-- Atomic for the reasons of acquire.
local K, F, X, Q, W, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, ttl, wait, owner, max_depth = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local label, fences, keep, floor = ARGV[6] or '', ARGV[7] or 'clock', ARGV[8] or '0', ARGV[9] or '0'
-- @include part/refusal.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include part/flag.lua
-- @include part/wish.lua
-- @include part/line.lua
-- First: its own undoing may have overtaken this request, which then must leave nothing.
if redis.call('EXISTS', X) == 1 then return {-1} end
local hold = redis.pcall('HMGET', K, 'o', 'f')
local bad = refusal(hold, 'HMGET')
if bad then return bad end
-- Before the queue: a re-entry that waited there would wait for its own hold to end.
if not hold.err and hold[1] == owner then
  if not string.find(hold[2] or '', '^%d+$') then return {-8, K, string.sub(hold[2] or '', 1, 64)} end
  local entry, depth = '#' .. token, redis.call('HLEN', K) - 4
  if redis.call('HEXISTS', K, entry) == 1 then return {2, hold[2], depth} end
  if depth >= max_depth then return {-3} end
  redis.call('HSET', K, entry, '1')
  -- A token that holds is no waiter: its place would hold up the others.
  drop(member)
  local left = redis.call('PTTL', K)
  -- Never shorter: an inner entry must not cut the lease of an outer one.
  if left < tonumber(ttl) then
    redis.call('PEXPIRE', K, ttl)
    left = tonumber(ttl)
  end
  return {1, hold[2], depth + 1, left}
end
local value = hold
if not hold.err and not hold[1] then value = redis.call('EXISTS', K) == 1 and hold or false end
if hold.err then value = redis.call('GET', K) end -- a key that is no string either is no lock, and the error says so
local free, dies, waiting = false, nil, nil
if value then
  waiting = redis.call('ZCARD', Q)
else
  -- @include part/try.lua
end
if free then
  local number, fence = next_fence()
  if not number then return {-6, F, fence} end
  local since = string.format('%.0f', now_ms)
  redis.call('PEXPIRE', K, ttl) -- before there is anything to end, so that nothing stays where the right to it is missing
  redis.call('HSET', K, 'o', owner, 'f', fence, 's', since, 'l', label, '#' .. token, '1')
  redis.call('PEXPIRE', K, ttl)
  return {1, fence, 1, tonumber(ttl)}
end
-- @include part/join.lua
