-- queue_living: which queues hold something, or are paused or limited; the others are taken from the list.
-- KEYS  X all queues; then for each queue T timeline, D dead letters, H held, N counters
-- ARGV  the names of the queues
-- Returns for each 1 or 0. One whose counters are damaged stays.
-- Atomic so that no queue is forgotten into which a message goes. Works when out of memory.
local living = {}
