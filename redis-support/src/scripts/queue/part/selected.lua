-- Part: selected(). Needs look_up(). ARGV from `from` on: 'ids' and ids, or 'oldest' and how many.
-- Returns the numbers of those that are dead, and whether there are more than asked for.
local function selected(from)
  local numbers = {}
  if ARGV[from] == 'oldest' then
    local count = tonumber(ARGV[from + 1])
    return redis.call('ZRANGE', D, 0, count - 1), redis.call('ZCARD', D) > count and 1 or 0
  end
  for i = from + 1, #ARGV do
    local id = look_up(ARGV[i])
    if id and redis.call('ZSCORE', D, id) then numbers[#numbers + 1] = id end
  end
  return numbers, 0
end
