tick()
local key, edge, upto = set == 'T' and T or H, 2 * now + 1, 9007199254740991
if flying then -- no lease lasts longer than a day
  if tonumber(from) <= edge then from, number_before = string.format('%.0f', edge + 1), '' end
  upto = edge + 2 * 86400000000
end
upto = string.format('%.0f', upto)
local skip = 0
for _, id in ipairs(redis.call('ZRANGE', key, from, from, 'BYSCORE', 'LIMIT', 0, 1000)) do
  if id <= number_before then skip = skip + 1 end
end
local found = redis.call('ZRANGE', key, from, upto, 'BYSCORE', 'LIMIT', skip, LOOKS, 'WITHSCORES')
local out, bytes, listed, i = {now, '', 0, '0'}, 0, 0, 1
while found[i] and listed < max and bytes < BYTES do
  local id, score = found[i], tonumber(found[i + 1])
  local state = standing(set, score)
  if is_number(id) and score % 1 == 0 and (state == 3) == flying then
    local record = redis.call('HGET', M, id)
    if record then
      local n = #out
      out[n + 1], out[n + 2], out[n + 3] = id, state, set == 'T' and math.floor(score / 2) or score
      out[n + 4], out[n + 5] = record, redis.call('HGET', R, id) or redis.call('HGET', O, id) or ''
      listed, bytes = listed + 1, bytes + string.len(record)
    end
  end
  i = i + 2
end
if found[i] or #found == 2 * LOOKS then
  out[2], out[3], out[4] = set, math.ceil(tonumber(found[i - 1])), found[i - 2]
elseif set == 'T' and not flying and redis.call('ZCARD', H) > 0 then
  out[2] = 'H'
end
return out
