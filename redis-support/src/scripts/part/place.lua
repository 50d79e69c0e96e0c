-- Part: keeps the place of member in the line, or gives it the last one. Needs the clock and the parts of refusal and line;
-- presence; waiting, how many waiters there are; present, its score in W; text, its terms. Declares comes, and sets place.
  local longest, left = math.max(60000, 4 * presence), waiting > 0 and redis.call('PTTL', Q) or -1
  -- Its time of arrival orders it, unless the clock did not advance or was set back. This comes before all other writes: a
  -- script that has written is not refused for want of memory.
  local comes = redis.call('ZADD', Q, 'NX', now, member) == 1
  if left < longest / 2 then -- it lasts for longer than needed, so that few have to do this
    local refused = redis.pcall('PEXPIRE', Q, longest)
    if type(refused) == 'table' then
      if comes then redis.call('ZREM', Q, member) end -- no key without an end is left where the right to it is missing
      return refusal(refused, 'PEXPIRE')
    end
  end
  place = waiting > 0 and redis.call('ZRANK', Q, member) or 0
  if comes and place ~= waiting then
    local last = redis.call('ZRANGE', Q, -1, -1, 'WITHSCORES')
    redis.call('ZADD', Q, string.format('%.0f', last[2] + 1), member)
    place = waiting
  end
  redis.call('ZADD', W, present, member)
  if left < longest / 2 then redis.call('PEXPIRE', W, longest) end
  if comes then redis.call('HSET', D, member, text) end
  if left < longest / 2 then redis.call('PEXPIRE', D, longest) end
