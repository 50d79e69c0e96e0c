if redis.call('EXISTS', X) == 1 then return {-1} end
local hold = redis.pcall('HMGET', K, 'o', 'f')
local bad = refusal(hold, 'HMGET')
if bad then return bad end
if not hold.err and hold[1] == owner then
  if not string.find(hold[2] or '', '^%d+$') then return {-8, K, string.sub(hold[2] or '', 1, 64)} end
  local entry, depth = '#' .. token, redis.call('HLEN', K) - 4
  if redis.call('HEXISTS', K, entry) == 1 then return {2, hold[2], depth} end
  if depth >= max_depth then return {-3} end
  redis.call('HSET', K, entry, '1')
  drop(member)
  local left = redis.call('PTTL', K)
  if left < tonumber(ttl) then
    redis.call('PEXPIRE', K, ttl)
    left = tonumber(ttl)
  end
  return {1, hold[2], depth + 1, left}
end
local value = hold
if not hold.err and not hold[1] then value = redis.call('EXISTS', K) == 1 and hold or false end
if hold.err then value = redis.call('GET', K) end -- a key that is no string either is no lock, and the error says so
local head, dies = next_up(value)
if not value and budget > 0 and (head or member) == member then
  if head then drop(member) end
  local number, fence = next_fence()
  if not number then return {-6, F, fence} end
  local since = string.format('%.0f', now_ms)
  redis.call('PEXPIRE', K, ttl) -- before there is anything to end, so that nothing stays where the right to it is missing
  redis.call('HSET', K, 'o', owner, 'f', fence, 's', since, 'l', label, '#' .. token, '1')
  redis.call('PEXPIRE', K, ttl)
  return {1, fence, 1, tonumber(ttl)}
end
return busy(value, dies)
