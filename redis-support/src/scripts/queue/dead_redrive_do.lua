tick()
local numbers, more = selected(5)
local moved = 0
for _, id in ipairs(numbers) do
  local state = redis.call('HGET', O, id)
  if redis.call('ZREM', D, id) == 1 and state then
    moved = moved + 1
    redis.call('HSET', O, id, after(state, 0, 'D', '-'))
    insert(id, 2 * (now + delay))
  end
end
if moved > 0 then redis.call('ZADD', X, 0, queue) end
wake_if_sooner()
return {moved, more}
