local ahead = max > 0 and floor_ahead()
if ahead then return ahead end
local answers = settle(10)
local received = max > 0 and receive() or {}
if made then made.wake() end
return {answers, received}
