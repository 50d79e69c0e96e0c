tick()
local ids, answers = {}, {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = string.sub(ARGV[i], 1, 14) end
local states = redis.call('HMGET', R, unpack(ids))
redis.call('HDEL', R, '') -- works without memory, and lets the next ones work
for i, id in ipairs(ids) do
  local ends = redis.call('ZSCORE', T, id)
  answers[i] = 0
  if states[i] and ends and string.sub(states[i], 12, 25) == string.sub(ARGV[2 * i], 15, 28) then
    ends = tonumber(ends)
    if ends > 2 * now + 1 then
      local asked = 2 * (now + tonumber(ARGV[2 * i + 1])) + 1
      if asked > ends then
        redis.call('ZADD', T, asked, id)
        if string.find(marks, 'i', 1, true) then
          redis.call('ZADD', L, (asked - 1) / 2, id)
          redis.call('PEXPIRE', L, LONGEST)
        end
      end
      answers[i] = 1
    end
  end
end
return answers
