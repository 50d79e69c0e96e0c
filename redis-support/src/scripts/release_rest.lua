if not held then return refusal(value, 'GET') or 0 end
local Q, W, D, F, turn = KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2]
