-- Part: what can be seen of a lock. Needs now_ms. look(K lock, W presence) returns {waiters, now ms, 'none'} |
-- {…, 'string', pttl, value} | {…, 'hash', pttl, fence, since, label, fields, owner} | {…, another type, pttl}. Reads only.
local function look(K, W)
  local waiters = redis.call('ZCOUNT', W, '(' .. string.format('%.0f', now_ms), '+inf')
  local kind = redis.call('TYPE', K).ok
  local seen = {waiters, string.format('%.0f', now_ms), kind}
  if kind == 'none' then return seen end
  seen[4] = redis.call('PTTL', K)
  if kind == 'string' then
    seen[5] = redis.call('GET', K)
  elseif kind == 'hash' then
    local fields = redis.call('HMGET', K, 'f', 's', 'l', 'o')
    seen[5], seen[6], seen[7] = fields[1] or '', fields[2] or '', fields[3] or ''
    seen[8], seen[9] = redis.call('HLEN', K), fields[4] or ''
  end
  return seen
end
