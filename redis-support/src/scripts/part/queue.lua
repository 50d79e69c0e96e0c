-- Part: the queue of waiters. Needs now_ms; Q a ZSET of members by order of arrival; W a ZSET of the same members by
-- the server's millisecond at which they count as dead; claim how many ms a woken head has to ask; channel what the
-- clients' wake-up channels begin with. A member is '<token>@<client>'.
-- One run removes at most 32 waiters, so that no script is long.
local budget = 32

local function drop(member)
  redis.call('ZREM', Q, member)
  redis.call('ZREM', W, member)
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

-- Wakes the first live waiter. One whose client does not listen any more is removed, and the next one is woken. The
-- woken one has `claim` ms to ask; then it counts as dead and holds up nobody.
local function wake_head()
  while true do
    local head, dies = live_head()
    if not head then return end
    local heard = redis.call('PUBLISH', channel .. string.sub(head, 24), string.sub(head, 1, 22))
    if heard > 0 or budget == 0 then
      if dies > now_ms + claim then
        redis.call('ZADD', W, now_ms + claim, head)
      end
      return
    end
    budget = budget - 1
    drop(head)
  end
end
