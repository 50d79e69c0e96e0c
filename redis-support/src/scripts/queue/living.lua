-- queue_living: which queues hold something, or are paused or limited; the others are taken from the list.
-- KEYS  X all queues; then for each queue T timeline, D dead letters, H held, N counters
-- ARGV  the names of the queues
-- Returns for each 1 or 0. One whose counters are damaged stays.
-- Atomic so that no queue is forgotten into which a message goes. Works when out of memory.
local living = {}
-- @include part/refusal.lua
for i, name in ipairs(ARGV) do
  local holds = redis.call('EXISTS', KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]) > 0
  local counters = redis.pcall('GET', KEYS[4 * i + 1])
  local bad = refusal(counters, 'GET')
  if bad then return bad end
  local marked = counters and (type(counters) == 'table' or not string.find(counters, '^%d+;%d+;%d+;%d+;$'))
  living[i] = (holds or marked) and 1 or 0
  if living[i] == 0 then redis.call('ZREM', KEYS[1], name) end
end
return living
