-- Part: the queue's clock and counters. Needs N; keep for how many ms the counters outlive their last use, '0' for
-- ever.
-- tick() sets `now`, the queue's time in microseconds: the server's time plus `shift`, which grows by the size of every
-- step back, so that the queue's time continues at the same pace. Then `number` is the last message's number, `fence` the
-- last delivery's, and `marks` say how the queue is unusual: 'p' it is paused, 'i' and 'r' it is limited, as the
-- part of limits says. save() stores them; a step back is seen as far as the last save, and time does not advance until then.
local now, number, fence, clock, shift, marks
local stepped, HOUR, FAR = false, 3600000000, 4503599627370496 -- FAR: 2^52, in the year 2112; twice a time is a score
local LONGEST = 86460000 -- how long what is counted of leases is kept: a day and a minute, in ms
-- Whether the marks are as limits and pauses write them, with times that a queue can have.
local function known(found)
  local rest = string.gsub(string.gsub(found, 'p', '', 1), 'i[1-9]%d*', '', 1)
  local full_at = string.match(rest, '^r[1-9]%d*,[1-9]%d*,(%d+)$')
  return rest == '' or full_at and tonumber(full_at) < FAR
end

-- What cannot be counted on with ends the run, before it has changed anything: the error is read by the driver.
local function damaged(found)
  error('DAMAGED ' .. N .. '|' .. string.gsub(string.sub(found, 1, 64), '[^%w ;,.+-]', '?') .. '|', 0)
end

local function load()
  if marks then return end
  local counters = redis.call('GET', N)
  number, fence, clock, shift, marks = 0, 0, 0, 0, ''
  if not counters then return end
  local a, b, c, d, rest = string.match(counters, '^(%d+);(%d+);(%d+);(%d+);([%w,]*)$')
  if not a or rest ~= '' and not known(rest) then damaged(counters) end
  number, fence, clock, shift, marks = tonumber(a), tonumber(b), tonumber(c), tonumber(d), rest
  if math.max(number, fence, clock, shift) >= FAR then damaged(counters) end
end

local function tick()
  if now then return end
  local time = redis.call('TIME')
  load()
  now = time[1] * 1000000 + time[2] + shift
  if now >= FAR then damaged(redis.call('GET', N) or '') end
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
