-- Part: the line of waiters. Needs K the lock; Q a ZSET of members by their arrival in µs; and of the same members W, a ZSET by
-- the server's millisecond at which they count as dead, and D, a HASH of their terms: '<ttl ms>;<label>' of those that take
-- the lock without asking, else ''. A member is '<token>@<client>'. A token that holds the lock is no member.
-- One run removes at most so many waiters, so that no script is long. Where that did not reach a live one, the budget is 0,
-- no waiter has the turn, and the script has to continue at once.
local budget = 256

local function drop(...)
  redis.call('ZREM', Q, ...)
  redis.call('ZREM', W, ...)
  redis.call('HDEL', D, ...)
end
