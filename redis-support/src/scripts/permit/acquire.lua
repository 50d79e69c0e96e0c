-- permit_acquire: takes a share of a semaphore or a read-write lock if it fits behind the waiters, or keeps the token's place.
-- KEYS  R record, H ends of leases, G fences, Q line, W presence, D terms, F fence counter, X tombstone of the token
-- ARGV  token, ttl ms, weight, capacity, wait as part/wish says, fences clock|counter, keep ms, floor; and if it is not
--       empty: label
-- Returns the fence, granted now in the usual case; {1, more, fence, ttl µs} granted now; {2, more, fence, ttl µs} the token
--         holds since an earlier request; {0, more, position|-1, recheck µs|-1, now µs} busy; {-1, more} the token was
--         abandoned; {-2, more} the line is full; {-4, more} the share is impossible; {-6, more, key, what it holds} the
--         fence counter is damaged, or the floor, which is shown then, is too far ahead; {-9} nothing is decided, ask again.
--         more is 1 if permit_pass has to continue.
-- Atomic because the share has to fit when it is taken, and no waiter may come in between.
local R, H, G, Q, W, D, F, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local token, ttl, weight, capacity, wait = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local fences, keep, floor, label = ARGV[6], ARGV[7], ARGV[8], ARGV[9] or ''
-- @include part/now.lua
-- @include part/fence.lua
local seen = redis.call('HMGET', R, 'u', 'g', token)
local others, used = redis.call('EXISTS', X, Q, H), tonumber(seen[1] or '0')
local life, after = math.max(120000, 4 * ttl), (used or 0) + weight
-- The usual case: no waiters, no hold of the token, no ended lease, and the share fits. It needs no function of the others.
if not seen[2] and not seen[3] and used and others == (used > 0 and 1 or 0) and weight + 0 > 0 and after <= capacity + 0 then
  local first, left = used > 0 and redis.call('ZRANGE', H, '0', '0', 'WITHSCORES'), -1
  if not first or first[2] + 0 > now_us and (used < 1024 or redis.call('ZCARD', H) < 1024) then
    local number, fence = next_fence()
    if not number then return {-6, 0, F, fence} end
    if first then left = redis.call('PTTL', R) end
    redis.call('HSET', R, 'u', after, token, fence .. ';' .. weight .. ';' .. capacity .. ';' .. now .. ';' .. ttl .. ';0;0;' .. label)
    if left < life / 2 then
      local refused = redis.pcall('PEXPIRE', R, life)
      if type(refused) == 'table' then
        redis.call('DEL', R) -- no key without an end is left where the right to it is missing
        return redis.error_reply(refused.err .. ' [PEXPIRE]')
      end
    end
    redis.call('ZADD', H, now_us + 1000 * ttl, token)
    redis.call('ZADD', G, fence, token)
    if left < life / 2 then
      redis.call('PEXPIRE', H, life)
      redis.call('PEXPIRE', G, life)
    end
    return number
  end
end
-- @include part/refusal.lua
-- @include part/wish.lua
-- @include permit/part/record.lua
-- @include permit/part/serve.lua
if not settled then return {-9} end
serve(member)
if redis.call('EXISTS', X) == 1 then return {-1, more} end
-- So many came before it that the rest has to be notified first.
if more == 1 then return {-9} end
local hold = seen[3] and hold_of(token)
if hold then
  if hold.handed == '0' then return {2, more, tonumber(hold.fence), 1000 * hold.ttl} end
  -- It was handed over for a short while: now it lasts as long as was requested.
  hold.handed, hold.ttl = '0', ttl
  write(token, hold)
  lengthen(token, now_us + 1000 * ttl)
  return {1, more, tonumber(hold.fence), 1000 * ttl}
end
local place = redis.call('ZRANK', Q, member)
local terms = place and terms_of(member)
if place and not terms then
  drop(member, '#') -- its place cannot be read: it gets a new one
  place = false
end
if terms then weight, capacity = terms.weight, terms.capacity end
weight, capacity = tonumber(weight), tonumber(capacity)
if weight == 0 or weight > capacity then return {-4, more} end
local waiting = redis.call('ZCARD', Q)
local fits
if place then
  fits = place < at -- it fits behind those before it, as serve found
else
  fits = at == waiting and has_room(at, reserved + weight, math.min(least, capacity))
end
if fits and not growth then
  local number, fence = next_fence()
  if not number then
    forget() -- it was counted as one that asks, and still waits
    return {-6, more, F, fence}
  end
  if place then leave(member, terms) end
  add(token, {fence = fence, weight = weight, capacity = capacity, since = now, ttl = ttl, handed = '0', step = '0', label = label},
    now_us + 1000 * ttl)
  -- The capacity that it named does not limit the waiters behind it any more.
  if place then serve() end
  return {1, more, number, 1000 * ttl}
end
if presence > 0 then
  if not place and waiting >= max_waiters then return {-2, more} end
  local present = now_us + 1000 * presence
  local text = form_terms(weight, capacity, '0', direct == '1' and ttl or '0', label)
  -- @include part/place.lua
end
if terms and terms.called == '1' then
  redis.call('HSET', D, member, form_terms(weight, capacity, '0', terms.ttl, terms.label))
  forget()
end
local recheck = -1
if growth then
  if not place or place == 0 then recheck = growth.present - now_us end
else
  local head = place ~= 0 and redis.call('ZRANGE', Q, '0', '0')[1]
  local first = head and terms_of(head)
  if first and (first.called == '1' or not (place and place > 0) and has_room(0, weight, capacity)) then
    recheck = redis.call('ZSCORE', W, head) - now_us
  elseif not (first and place and place > 0) then
    recheck = enough_ended(nil, function(back, ended)
      return used - back + weight <= capacity and holders - ended < most
    end)
  end
end
return {0, more, presence > 0 and place or -1, recheck, now_us}
