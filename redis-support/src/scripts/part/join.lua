-- Part: the answer to a request that has to wait: {0, position or -1, recheck_ms or -1, now_us}; {-2} when the queue is full;
-- or an error. Needs the clock, flag, wish, line and refusal parts; ttl, label; waiting, how many waiters there are; value, the
-- plain value (string), an error (the lock is held re-entrantly or is of a foreign type) or false; and, where value is false,
-- dies, when the waiter that has the turn counts as dead.
local POLL = 500 -- how often a lock of a foreign client, which sends no wake-ups, is checked, in ms
local place, own = -1, flag_of(value)
if presence > 0 then
  if waiting > 0 then
    -- @include part/bury.lua
    if dead[1] then waiting = redis.call('ZCARD', Q) end
  end
  if waiting >= max_waiters and not redis.call('ZSCORE', Q, member) then return {-2} end
  local present, text = now_ms + presence, direct == '1' and ttl .. ';' .. label or ''
  -- @include part/place.lua
  if own == '-' then redis.call('SETRANGE', K, 23, 'w') end
end
local recheck
if not value then
  recheck = budget == 0 and 1 or math.min(dies - now_ms, claim) + 1
else
  local left = redis.call('PTTL', K)
  if place > 0 then
    -- A waiter is notified that it is first only when a lock is released. Should all before it die, its turn
    -- comes after as many leases, if they are like this one; it asks then, and learns its place.
    recheck = left < 0 and -1 or (left + 1) * (place + 1)
  else
    -- It would be served next: when the holder's lease ends by itself.
    if not own and type(value) == 'table' and redis.pcall('HEXISTS', K, 'o') == 1 then own = 'r' end
    recheck = left + 1
    if left < 0 or (left >= POLL and not own) then recheck = POLL end
  end
end
return {0, place, recheck, now}
