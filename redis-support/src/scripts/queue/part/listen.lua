-- Part: listen(). Needs the parts of the clock and of insertion. IDLE: a client that waits asks again within so many us,
-- whatever it receives.
local IDLE, SPREAD = 20000000, 14000000

-- A client waits that got less than it asked for; `next` is what is worth telling it. Of those that wait one asks when the
-- next message is due, and one BACKUP later; the others need not, and promise to ask within IDLE, at odd times.
-- Of more than 1000 the one that asked the longest ago is forgotten. Returns the text to publish.
local function listen(client, next)
  redis.call('ZREM', C, client)
  local others = redis.call('ZCARD', C)
  local at_odds = IDLE - now % 1000000 * 7919 % SPREAD
  if next == -1 and others > 0 then
    next = at_odds
  elseif next > 0 and next < IDLE and others > 0 and promised(now + next) > 0 then
    next = promised(now + next + BACKUP) < 2 and next + BACKUP or math.max(next + BACKUP, at_odds)
  end
  if others >= 1000 then redis.call('ZREM', C, redis.call('ZRANGE', C, 0, 0)[1]) end
  local promise = now + (next >= 0 and math.min(next, IDLE) or IDLE)
  redis.call('ZADD', C, string.format('%.0f', promise), client)
  redis.call('PEXPIRE', C, 60000)
  return next
end
