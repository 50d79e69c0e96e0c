-- Part: behind(key, score, id): how many members of that score a page leaves out that goes on behind the id; it may be gone.
-- Members of one score are in the order of their bytes.
local function behind(key, score, id)
  local first = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local low, high = 0, redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', key, first + middle, first + middle)[1] <= id then low = middle + 1 else high = middle end
  end
  return low
end
