-- Part: the queue's clock and counters. Needs N; keep for how many ms the counters outlive their last use, '0' for
-- ever.
-- tick() sets `now`, the queue's time in microseconds: the server's time plus `shift`, which grows by the size of every
-- step back, so that the queue's time goes on at the same pace. Then `number` is the last message's number, `fence` the
-- last delivery's. save() stores them; a step back is seen as far as the last save, and time stands still until then.
local now, number, fence, clock, shift
local stepped = false
local function tick()
  if now then return end
  local time = redis.call('TIME')
  local counters = redis.call('GET', N)
  number, fence, clock, shift = 0, 0, 0, 0
  if counters then
    local a, b, c, d = string.match(counters, '^(%d+);(%d+);(%d+);(%d+)$')
    number, fence, clock, shift = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  end
  now = time[1] * 1000000 + time[2] + shift
  if now < clock then
    shift = shift + clock - now
    now = clock
    stepped = true
  end
end

local function save()
  clock = now
  local text = string.format('%.0f;%.0f;%.0f;%.0f', number, fence, clock, shift)
  if keep == '0' or shift > 0 then
    redis.call('SET', N, text)
  else
    redis.call('SET', N, text, 'PX', keep)
  end
end
