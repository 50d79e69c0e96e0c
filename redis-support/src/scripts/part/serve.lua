-- Part: serve() gives the turn at the free lock to the first waiter that lives and can be reached: the lock itself, or a wake-up,
-- and then it has `claim` ms to ask before it counts as dead and is passed over. Returns it, and when it counts as dead. An
-- `asker` is given nothing when it is the first, since it asks; nor is anybody who was given the turn before. Those before the
-- first are removed. Needs the clock, fence and line parts; claim; channel, what the clients' wake-up channels begin with.
local function serve(asker)
  local gone, last, deaf, found, dies = {}, 0, {}, nil, 0 -- usually the first one is taken: the others are not read with it
  local number, fence, count -- a fence that was never returned is unused
  repeat
    local waiters = #gone < budget and redis.call('ZRANGE', Q, #gone, last) or {}
    for _, waiter in ipairs(waiters) do
      dies = tonumber(redis.call('ZSCORE', W, waiter) or '0')
      local client = string.sub(waiter, 24)
      local alive = dies > now_ms
      if alive and asker and (waiter == asker or dies <= now_ms + claim) then
        found = waiter
        break
      elseif not alive or deaf[client] then
        gone[#gone + 1] = waiter
      else
        local news = string.sub(waiter, 1, 22)
        local ttl, label = string.match(hands and redis.call('HGET', D, waiter) or '', '^(%d+);(.*)$')
        if ttl and not number then number, fence, count = next_fence() end
        local given, span = ttl and number, claim -- else it asks, and learns what is wrong
        -- It receives the fence, the time, the length of the lease, no longer than a dead one may hold up others, and how many
        -- fences there are.
        if given then
          if tonumber(ttl) < claim then span = ttl end
          news = news .. ';' .. fence .. ';' .. now .. ';' .. span .. ';' .. count
        end
        if redis.call('PUBLISH', channel .. client, news) == 0 then
          deaf[client] = true -- it does not listen any more, and is not notified again
          gone[#gone + 1] = waiter
        else
          found = waiter
          if given then
            local ahead = number == now_us and '' or string.format('%.0f', number - now_us)
            local value = string.sub(waiter, 1, 22) .. ';h;' .. fence .. ';' .. ahead .. ';' .. label
            -- Until when, not for how long: from 7.2 on, a server counts spans from the script's start, which was before `now`.
            redis.call('SET', K, value, 'PXAT', string.format('%.0f', now_ms + 1 + span))
            drop(waiter)
          elseif dies > now_ms + claim then
            redis.call('ZADD', W, now_ms + claim, waiter)
          end
          break
        end
      end
    end
    last = budget - 1
  until found or not waiters[1]
  -- Behind the loop, which reads the queue by position.
  if gone[1] then drop(unpack(gone)) end
  budget = budget - #gone
  return found, dies
end
