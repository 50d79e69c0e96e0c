-- queue_turn: ends deliveries, then hands out messages that are due, with a lease each.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, fences clock|counter, most dead letters, client that waits ('' for none), max
--       (0: do not receive), lease us, floor of the fences, then the settlements, each as the part of settling says
-- Returns {answers of the settlements, {} or what the part of receiving says}; the floor alone, if it is more than a day
-- ahead of the clock: nothing was done.
-- Atomic because a receipt must be valid when it is settled, and no message may be handed out twice. Works when out of
-- memory: the first write of each step frees some.
local queue, channel, keep, fences = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local dead_cap, client, max, lease = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local floor = tonumber(ARGV[9])
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- What a usual run does without. It is made when it is first needed, since making functions takes time.
local function make_seldom()
  -- @include queue/part/form.lua
  -- @include queue/part/limit.lua
  -- @include queue/part/insert.lua
  -- @include queue/part/key.lua
  -- @include queue/part/bury.lua
  -- @include queue/part/settle_other.lua
  -- @include queue/part/unusual.lua
  -- @include queue/part/listen.lua

  local has_room = false -- settlements made some

  local function make_room(ids)
    tick()
    has_room = uncount(ids)
  end

  local function wake()
    if has_room then watch_over() else wake_if_sooner() end
  end

  return {
    settle = settle_other, forget = forget, make_room = make_room, prepare = prepare, put_held = put_held, room = room,
    room_at = room_at, count = count, listen = listen, watch_over = watch_over, wake = wake,
  }
end

-- @include queue/part/seldom.lua
-- @include queue/part/settle.lua
-- @include queue/part/receive.lua
local ahead = max > 0 and floor_ahead()
if ahead then return ahead end
-- In this order: the same run hands out what a settlement made due, or made room for.
local answers = settle(10)
local received = max > 0 and receive() or {}
-- Last, when it is known what remains for other clients.
if made then made.wake() end
return {answers, received}
