-- Part: expect(), insert(), watch_over() and wake_if_sooner(). Needs keys, clock and limits; queue its name; channel what the clients'
-- channels begin with. In T a score is twice a time in us, plus one for the end of a lease. In C a score is the queue time
-- by which a client that waits has promised to ask.
local head, soonest = nil, math.huge

-- A promise counts for GRACE us behind its time. BACKUP us behind the time at which one is to ask, another one asks too: the
-- first may be dead, or have no use for a message any more.
local GRACE, BACKUP, MOST_WOKEN = 1000000, 1500000, 64

-- A message is about to be put on the timeline: notes whether it is sooner than all others.
local function expect(score)
  if not head then
    head = tonumber(redis.call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  if score < soonest then soonest = score end
end

local function insert(id, score)
  expect(score)
  redis.call('ZADD', T, score, id)
end

-- How many clients ask by this time.
local function promised(by)
  return redis.call('ZCOUNT', C, string.format('%.0f', now - GRACE), string.format('%.0f', by))
end

-- Ensures that a client asks when the next message is due, unless the queue is paused: for each that is due already one
-- client, and one more within BACKUP. Wakes those that would ask the latest. One that does not listen any more is removed.
local function watch_over()
  if string.find(marks, 'p', 1, true) or redis.call('ZCARD', C) == 0 then return end
  local first = redis.call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
  if not first then return end
  local by, needed = math.floor(tonumber(first) / 2), 1
  if marks ~= '' then by = math.max(by, room_at()) end
  if by <= now then
    by, needed = now, math.min(redis.call('ZCOUNT', T, '-inf', 2 * now + 1), MOST_WOKEN)
    if marks ~= '' then needed = math.min(needed, room()) end
  end
  local missing = math.max(needed - promised(by), needed + 1 - promised(by + BACKUP))
  if missing <= 0 then return end
  local later = '(' .. string.format('%.0f', by)
  for _, client in ipairs(redis.call('ZRANGE', C, '+inf', later, 'BYSCORE', 'REV', 'LIMIT', 0, MOST_WOKEN)) do
    if redis.call('PUBLISH', channel .. client, '!' .. queue) == 0 then
      redis.call('ZREM', C, client)
    else
      redis.call('ZADD', C, string.format('%.0f', now), client)
      missing = missing - 1
      if missing == 0 then return end
    end
  end
end

local function wake_if_sooner()
  if soonest < (head or math.huge) or (head and soonest <= 2 * now + 1) then watch_over() end
end
