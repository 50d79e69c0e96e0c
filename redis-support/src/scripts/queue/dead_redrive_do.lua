tick()
local numbers, more = selected(5)
local moved = 0
for _, id in ipairs(numbers) do
  local record = redis.call('HGET', M, id)
  if record and is_number(id) and redis.call('ZREM', D, id) == 1 then
    moved = moved + 1
    local state = redis.call('HGET', O, id)
    local why, _, _, _, expires = read(record)
    if not why and expires > 0 then redis.call('HSET', M, id, until_when(record, 0)) end
    if not state or flaw_of_state(state, record) then state = first_state(record) end
    redis.call('HSET', O, id, after(state, 0, 'D', '-'))
    insert(id, 2 * (now + delay))
  end
end
if moved > 0 then redis.call('ZADD', X, 0, queue) end
wake_if_sooner()
return {moved, more}
