tick()
local removed, looks = 0, 1000
local held = redis.call('ZRANGE', H, 0, max, 'WITHSCORES')
local times = redis.call('ZRANGE', T, skip, skip + looks - 1, 'WITHSCORES')
local h, t = 1, 1
while removed < max and (held[h] or times[t]) do
  local id, place, score
  local hold_at, time = tonumber(held[h + 1] or 'inf') or math.huge, tonumber(times[t + 1] or 'inf') or math.huge
  if 2 * hold_at < time then
    id, place, score = held[h], 'H', hold_at
    h = h + 2
    if not redis.call('ZSCORE', H, id) then place, score = 'T', 2 * hold_at end -- an earlier removal let it go
  else
    id, place, score = times[t], 'T', time
    t = t + 2
  end
  if place == 'T' and standing(place, score) == 3 then
    skip = skip + 1
  else
    local record = redis.call('HGET', M, id)
    if record then
      removed = removed + 1
      remove(id, record, place, score)
    elseif place == 'T' then
      redis.call('ZREM', T, id)
    end
  end
end
wake_if_sooner()
if not held[h] and not times[t] and redis.call('ZCARD', T) <= skip and redis.call('ZCARD', H) == 0 then skip = -1 end
return {removed, skip}
