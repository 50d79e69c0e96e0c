-- Free, nobody waits, not abandoned: the usual case needs nothing of what is in this block.
local flag = '-'
if redis.call('EXISTS', K, X, Q) > 0 then
local W, D = KEYS[5], KEYS[6]
