-- Part: what a busy lock needs to know of the asking. Needs token; wait '<presence ms, 0 to leave no trace>;<max
-- waiters>;<direct 1|0>;<claim ms>;<client>;<channel prefix>'. Declares presence, max_waiters, direct, claim, member and
-- channel.
local presence, max_waiters, direct, claim, client, channel =
  string.match(wait, '^(%d+);(%d+);(%d);(%d+);([^;]*);(.*)$')
presence, max_waiters, claim = tonumber(presence), tonumber(max_waiters), tonumber(claim)
local member = token .. '@' .. client
