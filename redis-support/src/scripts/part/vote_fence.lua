-- Part: next_fence() for votes, as a number, as text, and that it is one. Needs now_us; F the counter's key; proposal as
-- text; keep the counter's life in ms. A proposal more than a day ahead of the server's clock counts as none. A damaged
-- counter, as the fence part says, is answered as there.
-- Declares hands: a waiter that would take the lock without asking has to ask, for a fence of another counter.
local hands = false

local function next_fence()
  local found = redis.call('GET', F) or '0'
  local last, proposed, text = tonumber(found), tonumber(proposal), proposal
  if not (last and last <= now_us + 86400000000) then return nil, string.sub(found, 1, 64) end
  local fence = last + 1
  if proposed > fence and proposed <= now_us + 86400000000 then
    fence = proposed
  else
    text = string.format('%.0f', fence)
  end
  redis.call('SET', F, text, 'PX', keep)
  return fence, text, 1
end
