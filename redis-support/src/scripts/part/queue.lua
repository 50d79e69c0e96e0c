-- Part: the queue of waiters. Needs now_ms and now_us; Q a ZSET of members by order of arrival; W a ZSET of the same
-- members by the server's millisecond at which they count as dead; D a HASH of those members that take the lock without
-- asking, with '<ttl ms>;<label>'; claim how many ms a head has to show that it lives; channel what the clients' wake-up
-- channels begin with; the fence part. K is the lock. A member is '<token>@<client>'. A token that holds the lock is no
-- member.
-- One run removes at most so many waiters, so that no script is long. Where that did not reach a live one, the budget is 0,
-- nobody has the turn, and somebody has to go on at once.
local budget = 256

local function drop(...)
  redis.call('ZREM', Q, ...)
  redis.call('ZREM', W, ...)
  redis.call('HDEL', D, ...)
end

-- The first waiter that accept(waiter, dies) takes, and when it counts as dead. Removes those before it.
local function first(accept)
  local gone, last, found, dies = {}, 0, nil, 0 -- usually the first one is taken: the others are not read with it
  repeat
    local waiters = #gone < budget and redis.call('ZRANGE', Q, #gone, last) or {}
    for _, waiter in ipairs(waiters) do
      dies = tonumber(redis.call('ZSCORE', W, waiter) or '0')
      if accept(waiter, dies) then
        found = waiter
        break
      end
      gone[#gone + 1] = waiter
    end
    last = budget - 1
  until found or not waiters[1]
  if gone[1] then drop(unpack(gone)) end
  budget = budget - #gone
  return found, dies
end

-- Tells a client something; whether it heard. One that did not hear once in this run is not told again.
local deaf = {}
local function tell(client, news)
  if not deaf[client] then deaf[client] = redis.call('PUBLISH', channel .. client, news) == 0 end
  return not deaf[client]
end

-- Gives a free lock to a waiter that takes it without asking, and tells it the fence, the time, how long the lease lasts, no
-- longer than a dead one may hold up others, and how many fences there are. Whether its client heard.
local function hand(waiter, ttl, label, number, fence, count)
  local token, client = string.sub(waiter, 1, 22), string.sub(waiter, 24)
  local span = math.min(tonumber(ttl), claim)
  local told = fence .. ';' .. now .. ';' .. string.format('%.0f', span) .. ';' .. count
  if not tell(client, token .. ';' .. told) then return false end
  local ahead = number == now_us and '' or string.format('%.0f', number - now_us)
  -- Until when, not for how long: from 7.2 on, a server counts spans from the script's start, which was before `now`.
  local ends = string.format('%.0f', now_ms + 1 + span)
  redis.call('SET', K, token .. ';h;' .. fence .. ';' .. ahead .. ';' .. label, 'PXAT', ends)
  drop(waiter)
  return true
end

-- Gives a waiter its turn: the lock itself, or a wake-up, and then it has `claim` ms to ask before it counts as dead and
-- holds up nobody. False when it is dead, or its client does not listen any more.
local number, fence, count -- a fence that nobody heard of is as good as new
local function give(waiter, dies)
  local client = string.sub(waiter, 24)
  if dies <= now_ms or deaf[client] then return false end
  local ttl, label = string.match(hands and redis.call('HGET', D, waiter) or '', '^(%d+);(.*)$')
  if ttl and not number then number, fence, count = next_fence() end
  if ttl and number then return hand(waiter, ttl, label, number, fence, count) end -- else it asks, and learns what is wrong
  if not tell(client, string.sub(waiter, 1, 22)) then return false end
  if dies > now_ms + claim then redis.call('ZADD', W, now_ms + claim, waiter) end
  return true
end

-- Gives the turn to the first waiter that can be reached.
local function pass_on()
  first(give)
end
