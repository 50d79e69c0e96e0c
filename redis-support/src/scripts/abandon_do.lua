local head = first(function(_, dies) return dies > now_ms end)
local value = redis.pcall('GET', K)
local bad = refusal(value, 'GET')
if bad then return bad end
local freed = type(value) == 'string' and string.sub(value, 1, 22) == ARGV[1]
if freed then redis.call('DEL', K) end
drop(member)
redis.call('SET', X, '1', 'PX', ARGV[3])
if (freed or head == member) and redis.call('EXISTS', K) == 0 then pass_on() end
return budget > 0 and 1 or -2
