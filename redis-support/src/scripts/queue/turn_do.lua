local answers = settle(10)
local received = max > 0 and receive() or {}
if made then made.wake() end
return {answers, received}
