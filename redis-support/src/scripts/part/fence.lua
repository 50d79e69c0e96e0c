-- Part: next_fence(). Needs now_us; F the counter's key; fences 'clock' or 'counter'; keep the counter's life in ms,
-- '0' for ever. Microseconds since 1970 stay below 2^53 until the year 2255; '%.0f' keeps every digit.
local function next_fence()
  local fence = (tonumber(redis.call('GET', F) or '') or 0) + 1
  if fences == 'clock' and now_us > fence then fence = now_us end
  local text = string.format('%.0f', fence)
  if keep == '0' then
    redis.call('SET', F, text)
  else
    redis.call('SET', F, text, 'PX', keep)
  end
  return text
end
