-- Part: next_fence() for votes, as a number, as text, and that it is one. Needs now_us; F the counter's key; proposal as
-- text; keep the counter's life in ms. A proposal more than a day ahead of the server's clock counts as none. A damaged
-- counter, as the fence part says, is answered as there.
-- Declares hands: a waiter that would take the lock without asking has to ask, for a fence of another counter.
local hands = false

local function next_fence()
  local fence, most, found = tonumber(proposal), now_us + 86400000000, nil
  local proposes = fence > 0 and fence <= most
  -- Usually the proposal is ahead of the counter, and one command is enough.
  if proposes then found = redis.call('SET', F, proposal, 'PX', keep, 'GET') else found = redis.call('GET', F) end
  local last = tonumber(found or '0')
  if proposes and last and last < fence then return fence, proposal, 1 end
  if not (last and last <= most) then
    if proposes then redis.call('SET', F, found, 'PX', keep) end
    return nil, string.sub(found, 1, 64)
  end
  local text = string.format('%.0f', last + 1)
  redis.call('SET', F, text, 'PX', keep)
  return last + 1, text, 1
end
