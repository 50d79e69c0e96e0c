tick()
-- While leases of before are counted, those of now are counted too, and nothing is limited. Two clients that do this at once
-- may count too few, until those leases end.
local COUNTING = '4294967295'
local was, again = string.match(marks, 'i(%d+)') or '0', '0'
if most == '0' or was == '0' or (was == COUNTING and from == '0') then
  redis.call('DEL', L) -- works without memory, and lets the next ones work
end
if most ~= '0' and (was == '0' or was == COUNTING) then
  local found = redis.call('HSCAN', R, from, 'COUNT', 1000)
  again = found[1]
  for i = 1, #found[2], 2 do
    local id = found[2][i]
    local ends = tonumber(redis.call('ZSCORE', T, id) or 0)
    if ends % 2 == 1 and ends > 2 * now + 1 then redis.call('ZADD', L, (ends - 1) / 2, id) end
  end
  redis.call('PEXPIRE', L, LONGEST)
end
local rate = string.match(marks, 'r[%d,]+') or ''
marks, clock = string.find(marks, 'p', 1, true) and 'p' or '', 0 -- with a new end of the counters' life
if again ~= '0' then
  marks = marks .. 'i' .. COUNTING .. rate
else
  if most ~= '0' then marks = marks .. 'i' .. most end
  if deliveries ~= '0' then marks = string.format('%sr%s,%s,0', marks, deliveries, per) end
end
save()
if marks ~= '' then redis.call('ZADD', X, 0, queue) end
watch_over()
return again
