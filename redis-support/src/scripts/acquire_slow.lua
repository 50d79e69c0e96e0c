if redis.call('EXISTS', X) == 1 then return {-1} end
local value = redis.pcall('GET', K)
local bad = refusal(value, 'GET')
if bad then return bad end
if own_flag(value) and string.sub(value, 1, 22) == token then
  return {2, string.match(value, '^[^;]*;.;(%d+);')}
end
local head, dies = live_head()
if not value and (not head or head == member) then
  if head then drop(member) end
  return grant(redis.call('EXISTS', Q) == 1 and 'w' or '-')
end
return busy(value, head, dies)
