local function grant(flag)
  local fence = next_fence()
  local value = token .. ';' .. flag .. ';' .. fence .. ';' .. string.format('%.0f', now_ms) .. ';' .. label
  redis.call('SET', K, value, 'NX', 'PX', ttl)
  return {1, fence}
end

-- Free, nobody waits, not abandoned: the usual case.
if redis.call('EXISTS', K, X, Q) == 0 then return grant('-') end

local member, presence, max_waiters, claim = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local channel = ARGV[10]
