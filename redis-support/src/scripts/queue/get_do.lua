tick()
local found, record = look_up(id)
if not found then return {} end
local place, score = find(found)
if not place then return {} end
local state = redis.call('HGET', R, found) or redis.call('HGET', O, found) or ''
local at = math.floor(math.max(math.min(place == 'T' and score / 2 or score, 4503599627370496), 0))
return {now, found, standing(place, score), at, record, state}
