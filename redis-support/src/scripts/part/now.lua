-- Part: the server's clock, read once. Declares now_us, the same as text in now, and now_ms. (Effects are replicated, not
-- scripts, so TIME is allowed before writes on every supported version.)
local time = redis.call('TIME')
local now_us, now = time[1] * 1000000 + time[2], time[1] .. time[2]
if #time[2] < 6 then now = time[1] .. string.rep('0', 6 - #time[2]) .. time[2] end
local now_ms = (now_us - now_us % 1000) / 1000
