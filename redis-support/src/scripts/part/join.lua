-- Part: a request that may wait: what it says of that, the queue, and next_up() and busy(). Needs the clock and fence parts;
-- K, Q, W, D; token, ttl, label; wait '<presence ms, 0 to leave no trace>;<max waiters>;<direct 1|0: takes the lock without
-- asking>;<claim ms>;<client>;<channel prefix>'. Declares member, who asks, and what wait says.
-- `value` is the plain value (string), an error (the lock is held re-entrantly or is of a foreign type) or false.
local presence, max_waiters, direct, claim, client, channel =
  string.match(wait, '^(%d+);(%d+);(%d);(%d+);([^;]*);(.*)$')
presence, max_waiters, claim = tonumber(presence), tonumber(max_waiters), tonumber(claim)
local member = token .. '@' .. client
-- @include part/queue.lua
local POLL = 500 -- how often a lock of a foreign client, which wakes nobody, is worth a look, in ms

-- The flag of a value in our own format, else nil: '<token>;<flag>;<fence>;<by how many µs that was ahead of the clock, if
-- it was>;<label>'.
local function own_flag(value)
  if type(value) ~= 'string' then return nil end
  local token, flag = string.match(value, '^([%w_%-]+);([hw%-]);%d+;%-?%d*;')
  if token and string.len(token) == 22 then return flag end
  return nil
end

-- When the holder's lease ends by itself, seen by a waiter who would be served next.
local function until_free(value)
  local left = redis.call('PTTL', K)
  local foreign = not own_flag(value)
  if type(value) == 'table' then foreign = redis.pcall('HEXISTS', K, 'o') ~= 1 end
  if left < 0 or (foreign and left >= POLL) then return POLL end
  return left + 1
end

-- Removes dead waiters wherever they stand, as far as the budget goes: they are before nobody, and have lost their places.
local function bury()
  local dead = redis.call('ZRANGE', W, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, budget)
  if dead[1] then drop(unpack(dead)) end
  budget = budget - #dead
end

local function enqueue()
  bury()
  local place, left = redis.call('ZRANK', Q, member), redis.call('PTTL', Q)
  local life, comes = math.max(60000, 4 * presence, left), not place
  if comes then
    place = redis.call('ZCARD', Q)
    if place >= max_waiters then return nil end
    -- Before anything is written: where memory or the right to it is missing, no key without an end is left. (XX adds
    -- nothing, and comes first because a script that has written is not refused for want of memory.)
    redis.call('ZADD', W, 'XX', now_ms, member)
    redis.call('PEXPIRE', Q, life)
    local last = redis.call('ZRANGE', Q, -1, -1, 'WITHSCORES')
    redis.call('ZADD', Q, (tonumber(last[2] or '0')) + 1, member)
    if direct == '1' then redis.call('HSET', D, member, ttl .. ';' .. label) end
  end
  redis.call('ZADD', W, now_ms + presence, member)
  if comes or left < life then
    redis.call('PEXPIRE', Q, life)
    redis.call('PEXPIRE', W, life)
    redis.call('PEXPIRE', D, life)
  end
  return place
end

-- Who comes next when `member` asks: the first live waiter, and when it counts as dead. If the lock is free because a lease
-- ran out, those before `member` were not told: it is their turn now, if they can be reached.
local function next_up(value)
  return first(function(waiter, dies)
    if value then return dies > now_ms end
    return dies > now_ms and (waiter == member or dies <= now_ms + claim or give(waiter, dies))
  end)
end

-- The reply {0, position or -1, recheck_ms or -1, now_us}, or {-2} when the queue is full. `dies` is when the waiter that
-- has the turn at a free lock counts as dead.
local function busy(value, dies)
  value = value or redis.call('GET', K) -- it may have been handed over just now
  local place = -1
  if presence > 0 then
    place = enqueue()
    if not place then return {-2} end
    if own_flag(value) == '-' then
      redis.call('SETRANGE', K, 23, 'w')
    end
  end
  local recheck
  if not value then
    recheck = budget == 0 and 1 or math.min(dies - now_ms, claim) + 1
  elseif place <= 0 then
    recheck = until_free(value)
  else
    -- Nobody tells a waiter that it has come to the front, unless a lock is released. Should all before it die, its turn
    -- comes after as many leases, if they are like this one; it asks then, and learns its place.
    local left = redis.call('PTTL', K)
    recheck = left < 0 and -1 or (left + 1) * (place + 1)
  end
  return {0, place, recheck, now}
end
