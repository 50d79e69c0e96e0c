-- Part: the answer to a plain request. Needs the clock and next_fence().
-- Free, no waiters, not abandoned: the usual case needs nothing of the block. The block makes its
-- functions only when it runs: making a function costs as much as a call.
local flag, found = '-', redis.call('EXISTS', K, X, Q)
if found > 0 then
  local W, D = KEYS[5], KEYS[6]
  -- @include part/refusal.lua
  -- @include part/flag.lua
  local value, free, dies = redis.pcall('GET', K), false, nil
  local bad = refusal(value, 'GET')
  if bad then return bad end
  if type(value) == 'table' then redis.call('HLEN', K) end -- a key that is no hash either is no lock, and the error says so
  -- Before the queue: a repeated request, or one of a waiter to which the lock was handed over, has its lease already.
  if type(value) == 'string' and string.sub(value, 1, 22) == token then
    local own, fence, ahead = flag_of(value), string.match(value, '^[^;]*;.;(%d+);(%-?%d*)')
    -- So it was not abandoned: that would have ended the lease.
    local given = {2, fence, 1, tonumber(ttl), (tonumber(ahead) or 0) > 4 and 1 or 8} -- as its grant said
    if own == 'h' then -- for a short while, to a waiter that asks all the same: now it lasts
      -- @include part/lengthen.lua
      lengthen(K)
      redis.call('SETRANGE', K, 23, 'w')
      given[1] = 1
    end
    if own then return given end
  end
  local waiting = redis.call('ZCARD', Q)
  if found > (value and 1 or 0) + math.min(waiting, 1) then return {-1} end -- what else is there is the tombstone
  -- @include part/wish.lua
  -- @include part/line.lua
  if not value then
    -- @include part/try.lua
  end
  if not free then
    -- @include part/join.lua
  end
  if redis.call('EXISTS', Q) == 1 then flag = 'w' end
end
local fence, text, count = next_fence()
if not fence then return {-6, F, text} end
-- Usually the fence is the clock's reading. How little it is ahead when it is one of eight is left out: the client has to know the value.
local lead, ahead = fence - now_us, ''
if lead < 0 or lead > 4 then ahead = string.format('%.0f', lead) end
redis.call('SET', K, token .. ';' .. flag .. ';' .. text .. ';' .. ahead .. ';' .. label, 'PX', ttl)
if flag ~= '-' then return {1, fence, 1, tonumber(ttl), count} end
if count ~= 8 then return {3, fence, ahead} end
return fence
