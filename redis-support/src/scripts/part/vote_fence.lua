-- Part: next_fence() for votes, as a number and as text. Needs now_us; F the counter's key; proposal; keep the counter's
-- life in ms. A proposal more than a day ahead of the server's clock counts as none.
local function next_fence()
  local fence = (tonumber(redis.call('GET', F) or '') or 0) + 1
  if proposal > fence and proposal <= now_us + 86400000000 then fence = proposal end
  local text = string.format('%.0f', fence)
  redis.call('SET', F, text, 'PX', keep)
  return fence, text
end
