-- Part: known(). Needs keys, clock and find().

-- Where the message of a name is, its number, set and score; nil when the name is free.
local function known(name)
  local id = redis.call('HGET', I, 'n' .. name)
  if id then
    local place, score = find(id)
    return standing(place, score), id, place, score
  end
  local known_until = redis.call('ZSCORE', S, name)
  if known_until and tonumber(known_until) > now then return 5 end
  return nil
end
