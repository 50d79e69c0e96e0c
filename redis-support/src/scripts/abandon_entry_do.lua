local head = first(function(_, dies) return dies > now_ms end)
local freed = false
local hold = redis.pcall('HGET', K, 'o')
local bad = refusal(hold, 'HGET')
if bad then return bad end
if hold == ARGV[5] and redis.call('HDEL', K, '#' .. ARGV[1]) == 1 then
  freed = redis.call('HLEN', K) == 4
  if freed then redis.call('DEL', K) end
end
drop(member)
redis.call('SET', X, '1', 'PX', ARGV[3])
if (freed or head == member) and redis.call('EXISTS', K) == 0 then pass_on() end
return budget > 0 and 1 or -2
