local answers = settle(9)
local received = max > 0 and receive() or {}
wake_if_sooner()
return {answers, received}
