-- Part: behind(key, score, id): how many members of that score a page leaves out that continues behind the id; it may be gone.
-- Members of one score are in the order of their bytes, and Lua compares by the server's locale.
local function is_behind(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = string.byte(a, i), string.byte(b, i)
    if left ~= right then return left > right end
  end
  return #a > #b
end
local function behind(key, score, id)
  local first = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local low, high = 0, redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = redis.call('ZRANGE', key, first + middle, first + middle)[1]
    if is_behind(there, id) then high = middle else low = middle + 1 end
  end
  return low
end
