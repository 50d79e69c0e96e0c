-- Part: the queue's clock and counters. Needs N; keep for how many ms the counters outlive their last use, '0' for
-- ever.
-- tick() sets `now`, the queue's time in microseconds: the server's time plus `shift`, which grows by the size of every
-- step back, so that the queue's time goes on at the same pace. Then `number` is the last message's number, `fence` the
-- last delivery's, and `marks` tell what is unusual about the queue: 'p' it is paused, 'i' and 'r' it is limited, as the
-- part of limits says. save() stores them; a step back is seen as far as the last save, and time stands still until then.
local now, number, fence, clock, shift, marks
local stepped, HOUR = false, 3600000000
local function load()
  if marks then return end
  local counters = redis.call('GET', N)
  number, fence, clock, shift, marks = 0, 0, 0, 0, ''
  if counters then
    local a, b, c, d, rest = string.match(counters, '^(%d+);(%d+);(%d+);(%d+);([%w,]*)$')
    number, fence, clock, shift, marks = tonumber(a), tonumber(b), tonumber(c), tonumber(d), rest
  end
end

local function tick()
  if now then return end
  local time = redis.call('TIME')
  load()
  now = time[1] * 1000000 + time[2] + shift
  if now < clock then
    shift = shift + clock - now
    now = clock
    stepped = true
  end
end

-- Counters live for ever when time was set back, or the queue is marked. To make them last longer costs more than to leave
-- that as it is: once an hour is enough.
local function save()
  local same_hour = now - now % HOUR == clock - clock % HOUR
  clock = now
  local text = string.format('%.0f;%.0f;%.0f;%.0f;%s', number, fence, clock, shift, marks)
  if keep == '0' or shift > 0 or marks ~= '' then
    redis.call('SET', N, text)
  elseif same_hour then
    redis.call('SET', N, text, 'KEEPTTL')
  else
    redis.call('SET', N, text, 'PX', keep)
  end
end
