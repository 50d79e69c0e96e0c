-- Part: the server's clock, read once. Declares now_us and now_ms. (Effects are replicated, not scripts, so TIME is
-- allowed before writes on every supported version.)
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
