local values, others = redis.call('MGET', unpack(KEYS)), {}
for i, value in ipairs(values) do
  if value and string.sub(value, 1, 22) == ARGV[i + 1] then others[i] = lengthen(KEYS[i]) else others[i] = 0 end
end
return answer(others)
