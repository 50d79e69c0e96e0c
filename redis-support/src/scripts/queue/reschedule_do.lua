tick()
local found, record = look_up(id)
local place, score
if found then place, score = find(found) end
if not place then return 0 end
local state = standing(place, score)
if state == 3 or state == 4 then return state end
insert(found, 2 * (now + delay))
local _, key = about(record)
if place == 'H' then unhold(found, key, score) end
if place == 'T' and score % 2 == 1 then
  local last = redis.call('HGET', R, found) or first_state(record)
  redis.call('HDEL', R, found)
  redis.call('HSET', O, found, after(last, attempt_of(last), 'L', '-'))
end
depart(found, record)
wake_if_sooner()
return 1
