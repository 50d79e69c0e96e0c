tick()
redis.call('DEL', L) -- works without memory, and lets the next ones work
marks, clock = string.find(marks, 'p', 1, true) and 'p' or '', 0 -- with a new end of the counters' life
if most ~= '0' then
  marks = marks .. 'i' .. most
  for _, id in ipairs(redis.call('HKEYS', R)) do
    local ends = tonumber(redis.call('ZSCORE', T, id) or 0)
    if ends % 2 == 1 and ends > 2 * now + 1 then redis.call('ZADD', L, (ends - 1) / 2, id) end
  end
end
if deliveries ~= '0' then marks = string.format('%sr%s,%s,0', marks, deliveries, per) end
save()
if marks ~= '' then redis.call('ZADD', X, 0, queue) end
watch_over()
return 1
