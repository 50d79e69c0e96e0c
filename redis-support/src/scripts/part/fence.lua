-- Part: next_fence(), as a number, as text, and how many are reserved: eight from there on, or that one. Needs the
-- clock part; F the counter's key, which is kept seven below the last that was given; fences 'clock' or 'counter'; keep the
-- counter's life in ms, '0' for ever; floor what all fences are greater than, '0' for none. Microseconds since 1970 stay below 2^53 until the year 2255: numbers keep every digit.
-- A counter that is no number, or more than a day ahead of the clock, is damaged: the answer is nil and what it holds, and
-- it stays. So does one below a floor that is more than a day ahead: the answer is nil and the floor. Grants that follow one another faster than one in eight microseconds get one each when the counter is more than
-- four ahead, so that it stays close to the clock: after a loss of data the clock is all there is.
-- Declares hands: a waiter can be given the lock with such a fence.
local hands = true

local function next_fence()
  local fence, text, count = 1, '1', 8
  local most, least = now_us + 86400000000, floor - 7
  if least > most then return nil, floor end
  if fences == 'clock' then fence, text = now_us, now end
  -- Usually the clock is ahead of the counter, and one command is enough.
  local found
  if keep == '0' then
    found = redis.call('SET', F, text, 'GET')
  else
    found = redis.call('SET', F, text, 'PX', keep, 'GET')
  end
  local last = tonumber(found or least)
  if last and last < least then last = least end
  if not (last and last + 8 <= fence) then
    local sound = last and last <= most and last % 1 == 0
    local kept = found
    if sound then
      fence = last + 8
      text = string.format('%.0f', fence)
      kept = text
      if fence > now_us + 4 then
        kept, count = string.format('%.0f', last + 1), 1
      end
    end
    -- The command above has overwritten the counter, which must neither go back nor lose what shows its damage.
    redis.call('SET', F, kept)
    if keep ~= '0' then redis.call('PEXPIRE', F, keep) end
    if not sound then fence, text = nil, string.sub(found, 1, 64) end
  end
  return fence, text, count
end
