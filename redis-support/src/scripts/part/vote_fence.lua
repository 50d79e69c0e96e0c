-- Part: next_fence() for votes, as a number and as text. Needs now_us; F the counter's key; proposal as text; keep the
-- counter's life in ms. A proposal more than a day ahead of the server's clock counts as none.
local function next_fence()
  local fence, proposed, text = (tonumber(redis.call('GET', F) or '') or 0) + 1, tonumber(proposal), proposal
  if proposed > fence and proposed <= now_us + 86400000000 then
    fence = proposed
  else
    text = string.format('%.0f', fence)
  end
  redis.call('SET', F, text, 'PX', keep)
  return fence, text
end
