tick()
local numbers, more = selected(4)
local removed = 0
for _, id in ipairs(numbers) do
  local record = redis.call('HGET', M, id)
  if redis.call('ZSCORE', D, id) then
    removed = removed + 1
    remove(id, record or '', 'D')
  end
end
return {removed, more}
