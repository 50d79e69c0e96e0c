local fence, text = next_fence()
-- A fence that is the clock's reading tells since when.
local since = fence == now_us and '' or string.format('%.0f', now_ms)
redis.call('SET', K, token .. ';' .. flag .. ';' .. text .. ';' .. since .. ';' .. label, 'PX', ttl)
return fence
