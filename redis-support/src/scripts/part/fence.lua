-- Part: next_fence(), as a number, as text, and how many nobody else is given: eight from there on, or that one. Needs the
-- clock part; F the counter's key, which is kept seven below the last that was given; fences 'clock' or 'counter'; keep the
-- counter's life in ms, '0' for ever. Microseconds since 1970 stay below 2^53 until the year 2255: numbers keep every digit.
-- Grants that follow one another faster than one in eight microseconds get one each when the counter is more than four
-- ahead, so that it stays close to the clock: after a loss of data the clock is all there is.
local function next_fence()
  local fence, text, count = 1, '1', 8
  if fences == 'clock' then fence, text = now_us, now end
  -- Usually the clock is ahead of the counter, and one command is enough.
  local last = tonumber(redis.call('SET', F, text, 'GET') or '') or -7
  if last + 8 > fence then
    fence = last + 8
    text = string.format('%.0f', fence)
    local kept = text
    if fences == 'clock' and fence > now_us + 4 then
      kept, count = string.format('%.0f', last + 1), 1
    end
    redis.call('SET', F, kept)
  end
  if keep ~= '0' then redis.call('PEXPIRE', F, keep) end
  return fence, text, count
end
