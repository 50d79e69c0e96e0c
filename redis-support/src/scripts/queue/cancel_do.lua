tick()
local found, record = look_up(id)
if not found then return 0 end
local place, score = find(found)
local state = standing(place, score)
if state == 3 or state == 4 then return state end
remove(found, record, place, score)
wake_if_sooner()
return 1
