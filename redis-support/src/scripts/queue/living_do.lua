for i, name in ipairs(ARGV) do
  local holds = redis.call('EXISTS', KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]) > 0
  local counters = redis.pcall('GET', KEYS[4 * i + 1])
  local bad = refusal(counters, 'GET')
  if bad then return bad end
  local marked = counters and (type(counters) == 'table' or not string.find(counters, '^%d+;%d+;%d+;%d+;$'))
  living[i] = (holds or marked) and 1 or 0
  if living[i] == 0 then redis.call('ZREM', KEYS[1], name) end
end
return living
