local fence, text, count = next_fence()
if not fence then return {-6, F, text} end
-- Usually the fence is the clock's reading.
local ahead = fence == now_us and '' or string.format('%.0f', fence - now_us)
redis.call('SET', K, token .. ';' .. flag .. ';' .. text .. ';' .. ahead .. ';' .. label, 'PX', ttl)
if count ~= 8 then return {1, fence} end
return fence
