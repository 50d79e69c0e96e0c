tick()
if string.find(marks, 'p', 1, true) then return 2 end
local found, record = look_up(id)
local score = found and tonumber(redis.call('ZSCORE', T, found) or 1)
if not found or score % 2 == 1 then return 0 end
local state = redis.call('HGET', O, found) or first_state(record)
if string.sub(state, 9, 9) ~= 'P' or string.sub(state, 11, 11) ~= '-' then return 0 end
redis.call('HSET', O, found, string.sub(state, 1, 25) .. turn .. reason_of(state))
-- In the place that it would have if it had not waited: before what was pushed later.
insert(found, 2 * math.min(tonumber(found, 16), now))
wake_if_sooner()
return 1
