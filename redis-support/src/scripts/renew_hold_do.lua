local others = {}
for i, key in ipairs(KEYS) do
  local hold = redis.pcall('HMGET', key, 'o', 'f')
  local bad = refusal(hold, 'HMGET')
  if bad then return bad end
  local ours = not hold.err and hold[1] == ARGV[2 * i] and hold[2] == ARGV[2 * i + 1]
  if ours then others[i] = lengthen(key) else others[i] = 0 end
end
return answer(others)
