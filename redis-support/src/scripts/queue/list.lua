-- queue_list: names of queues that may hold something.
-- KEYS  X all queues
-- ARGV  '-', or '(' and the name that the list continues behind; max
-- Returns the names, in the order of their bytes. Reads only.
-- Atomic as any single command.
return redis.call('ZRANGE', KEYS[1], ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
