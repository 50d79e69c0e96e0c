-- Part: what a request says of waiting. Needs token; wait '<presence ms, 0 to leave no trace>;<max waiters>;<direct 1|0: takes
-- the lock without asking>;<claim ms>;<client>;<channel prefix>'. Declares these, and member, who asks.
local presence, max_waiters, direct, claim, client, channel =
  string.match(wait, '^(%d+);(%d+);(%d);(%d+);([^;]*);(.*)$')
presence, max_waiters, claim = tonumber(presence), tonumber(max_waiters), tonumber(claim)
local member = token .. '@' .. client
