-- enroll: makes the node vote in this electorate from now on.
-- KEYS  V electorate
-- ARGV  electorate
-- Returns 1.
-- Atomic as a single command is; a script only so that one way leads to the server.
redis.call('SET', KEYS[1], ARGV[1])
return 1
