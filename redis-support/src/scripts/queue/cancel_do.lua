tick()
local found, record = look_up(id)
if not found then return 0 end
local place, score = find(found)
local state = standing(place, score)
if state == 3 or state == 4 then return state end
remove(found, record, place, score)
if string.sub(id, 1, 1) == 'n' then redis.call('HDEL', I, id) end -- a damaged record does not tell its name
wake_if_sooner()
return 1
