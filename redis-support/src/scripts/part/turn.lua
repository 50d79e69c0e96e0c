-- Part: what giving the turn to the next waiter takes. Needs turn '<fences clock|counter>;<keep ms>;<floor>;<claim
-- ms>;<channel prefix>'. Declares fences, keep, floor, claim and channel.
local fences, keep, floor, claim, channel = string.match(turn, '^(%a+);(%d+);(%d+);(%d+);(.*)$')
claim = tonumber(claim)
