-- Part: the server's clock, read once. Declares now_us, the same as text in now, and now_ms. (Effects are replicated, not
-- scripts, so TIME is allowed before writes on every supported version.)
local time = redis.call('TIME')
local now = time[1] .. (#time[2] < 6 and string.rep('0', 6 - #time[2]) or '') .. time[2]
local now_us = tonumber(now)
local now_ms = (now_us - now_us % 1000) / 1000
