-- Part: the queue of waiters. Needs now_ms and now_us; Q a ZSET of members by order of arrival; W a ZSET of the same
-- members by the server's millisecond at which they count as dead; D a HASH of those members that take the lock without
-- asking, with '<ttl ms>;<label>'; claim how many ms a head has to show that it lives; channel what the clients' wake-up
-- channels begin with; the fence part. K is the lock. A member is '<token>@<client>'.
-- One run removes at most 128 waiters, so that no script is long: that many take one to two milliseconds.
local budget = 128

local function drop(member)
  redis.call('ZREM', Q, member)
  redis.call('ZREM', W, member)
  redis.call('HDEL', D, member)
end

-- The first live waiter and when it dies; removes the dead before it. Out of budget, the first one is taken as it is.
local function live_head()
  while true do
    local head = redis.call('ZRANGE', Q, 0, 0)[1]
    if not head then return nil, 0 end
    local dies = tonumber(redis.call('ZSCORE', W, head) or '0')
    if dies > now_ms or budget == 0 then return head, dies end
    budget = budget - 1
    drop(head)
  end
end

-- Tells a client something; whether it heard. One that did not hear once in this run is not told again.
local deaf = {}
local function tell(client, news)
  if deaf[client] then return false end
  deaf[client] = redis.call('PUBLISH', channel .. client, news) == 0
  return not deaf[client]
end

-- Gives a free lock to the first live waiter if it takes it without asking, and tells it the fence, the time, how long the
-- lease lasts, no longer than a dead one may hold up others, and how many fences there are. Tells whether its client heard.
local function hand(head, terms)
  local token, client = string.sub(head, 1, 22), string.sub(head, 24)
  if deaf[client] then return false end
  local ttl, label = string.match(terms, '^(%d+);(.*)$')
  local number, fence, count = next_fence()
  local span = string.format('%.0f', math.min(tonumber(ttl), claim))
  local news = token .. ';' .. fence .. ';' .. now .. ';' .. span .. ';' .. count
  if not tell(client, news) then return false end
  local ahead = number == now_us and '' or string.format('%.0f', number - now_us)
  redis.call('SET', K, token .. ';h;' .. fence .. ';' .. ahead .. ';' .. label, 'PX', span)
  drop(head)
  return true
end

-- Gives the turn to the first live waiter: the lock itself, or a wake-up, and then it has `claim` ms to ask before it
-- counts as dead and holds up nobody. One whose client does not listen any more is removed, and the next one has it.
local function pass_on()
  while true do
    local head, dies = live_head()
    if not head then return end
    local terms, heard = redis.call('HGET', D, head), false
    if terms then
      if hand(head, terms) then return end
    else
      heard = tell(string.sub(head, 24), string.sub(head, 1, 22))
    end
    if heard or budget == 0 then
      if dies > now_ms + claim then
        redis.call('ZADD', W, now_ms + claim, head)
      end
      return
    end
    budget = budget - 1
    drop(head)
  end
end
