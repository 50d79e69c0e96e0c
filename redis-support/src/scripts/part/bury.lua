-- Part: removes dead waiters at any place, as far as the budget allows: they have lost their places.
-- Needs the clock and line parts. Declares dead, those that were removed.
local dead = redis.call('ZRANGE', W, '-inf', string.sub(now, 1, -4), 'BYSCORE', 'LIMIT', '0', budget)
if dead[1] then drop(unpack(dead)) end
budget = budget - #dead
