-- abandon_entry: undoes whatever the token of one entry asked for, as abandon does for plain locks.
-- KEYS  K lock, X tombstone of the token, Q queue, W presence, D direct, F fence counter
-- ARGV  token, member, tombstone ms, turn as its part says, owner
-- Returns 1; -2 when pass has to go on.
-- Atomic, and fit for a server out of memory, for the reasons of abandon.
local K, X, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, turn = ARGV[2], ARGV[4]
