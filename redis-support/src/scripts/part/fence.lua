-- Part: next_fence(), as a number and as text: the first of eight that nobody else is given. Needs the clock part; F the
-- counter's key, which is kept at the first of the last eight; fences 'clock' or 'counter'; keep the counter's life in
-- ms, '0' for ever. Microseconds since 1970 stay below 2^53 until the year 2255: numbers keep every digit.
local function next_fence()
  local fence, text = 1, '1'
  if fences == 'clock' then fence, text = now_us, now end
  -- Usually the clock is ahead of the counter, and one command is enough.
  local last = tonumber(redis.call('SET', F, text, 'GET') or '') or -7
  if last + 8 > fence then
    fence = last + 8
    text = string.format('%.0f', fence)
    redis.call('SET', F, text)
  end
  if keep ~= '0' then redis.call('PEXPIRE', F, keep) end
  return fence, text
end
