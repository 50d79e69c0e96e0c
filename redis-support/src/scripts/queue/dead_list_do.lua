tick()
-- Those that died in the same microsecond, as many as one run buries, are ordered by their numbers.
local skip = 0
for _, id in ipairs(redis.call('ZRANGE', D, from, from, 'BYSCORE', 'LIMIT', 0, 1000)) do
  if id <= number_before then skip = skip + 1 end
end
local found = redis.call('ZRANGE', D, from, '+inf', 'BYSCORE', 'LIMIT', skip, max + 1, 'WITHSCORES')
local out, bytes, listed = {now, 0}, 0, 0
for i = 1, #found, 2 do
  if listed == max or bytes >= BYTES then
    out[2] = 1
    break
  end
  local record = redis.call('HGET', M, found[i]) or ''
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = found[i], found[i + 1], record, redis.call('HGET', O, found[i]) or ''
  listed, bytes = listed + 1, bytes + string.len(record)
end
return out
