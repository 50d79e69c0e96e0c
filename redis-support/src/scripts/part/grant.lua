-- Part: the answer to a plain request. Needs the clock and next_fence().
-- Free, nobody waits, not abandoned: the usual case needs nothing of what is in the block.
local flag = '-'
if redis.call('EXISTS', K, X, Q) > 0 then
  local W, D = KEYS[5], KEYS[6]
  -- @include part/refusal.lua
  -- @include part/join.lua
  if redis.call('EXISTS', X) == 1 then return {-1} end
  local value = redis.pcall('GET', K)
  local bad = refusal(value, 'GET')
  if bad then return bad end
  if type(value) == 'table' then redis.call('HLEN', K) end -- a key that is no hash either is no lock, and the error says so
  local own = own_flag(value)
  if own and string.sub(value, 1, 22) == token then
    local fence, ahead = string.match(value, '^[^;]*;.;(%d+);(%-?%d*)')
    local given = {2, fence, 1, tonumber(ttl), (tonumber(ahead) or 0) > 4 and 1 or 8} -- as its grant said
    if own ~= 'h' then return given end
    -- Handed over, for a short while, to a waiter that asks all the same: now it lasts.
    if redis.call('PTTL', K) < tonumber(ttl) then redis.call('PEXPIRE', K, ttl) end
    redis.call('SETRANGE', K, 23, 'w')
    given[1] = 1
    return given
  end
  local head, dies = next_up(value)
  if value or budget == 0 or (head or member) ~= member then return busy(value, dies) end
  if head then drop(member) end
  if redis.call('EXISTS', Q) == 1 then flag = 'w' end
end
local fence, text, count = next_fence()
if not fence then return {-6, F, text} end
-- Usually the fence is the clock's reading.
local ahead = fence == now_us and '' or string.format('%.0f', fence - now_us)
redis.call('SET', K, token .. ';' .. flag .. ';' .. text .. ';' .. ahead .. ';' .. label, 'PX', ttl)
if count ~= 8 then return {1, fence} end
return fence
