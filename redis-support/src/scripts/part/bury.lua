-- Part: removes dead waiters wherever they stand, as far as the budget goes: they are before nobody, and have lost their places.
-- Needs the clock and line parts. Declares dead, those that were removed.
local dead = redis.call('ZRANGE', W, '-inf', string.sub(now, 1, -4), 'BYSCORE', 'LIMIT', '0', budget)
if dead[1] then drop(unpack(dead)) end
budget = budget - #dead
