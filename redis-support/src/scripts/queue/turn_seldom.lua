
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
