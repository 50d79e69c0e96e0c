-- abandon_entry: undoes whatever the token of one entry asked for, as abandon does for plain locks.
-- KEYS  K lock, X tombstone of the token, Q queue, W presence
-- ARGV  token, member, tombstone ms, claim ms, channel prefix, owner
-- Returns 1.
-- Atomic, and fit for a server out of memory, for the reasons of abandon.
local K, X, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, claim, channel = ARGV[2], tonumber(ARGV[4]), ARGV[5]
