-- Part: what giving the turn to the next waiter takes. Needs turn '<fences clock|counter>;<keep ms>;<claim ms>;<channel
-- prefix>'. Declares fences, keep, claim and channel.
local fences, keep, claim, channel = string.match(turn, '^(%a+);(%d+);(%d+);(.*)$')
claim = tonumber(claim)
