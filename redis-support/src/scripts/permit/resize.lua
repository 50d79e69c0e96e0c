-- permit_resize: changes the weight of a hold; its lease stays.
-- KEYS  R record, H ends of leases, G fences, Q line, W presence, D terms, F fence counter
-- ARGV  token, turn as its part says, member, weight, capacity, number of the change, presence ms, 0 to leave no trace
-- Returns {1, more, fence, ttl µs} changed; {2, more, fence, ttl µs} it has this weight; {0, more, position 0|-1, recheck
--         µs|-1, now µs} busy; {-3, more} the token has no hold; {-4, more} the share is impossible; {-5, more} a later
--         change arrived before; {-6, more, key, what it holds} the fence counter is damaged, as in permit_acquire; {-7,
--         more} another hold waits for more; {-9} nothing is decided, ask again. more is 1 if permit_pass has to continue.
-- Atomic because the new weight has to fit when it is taken, and what is given back belongs to the first waiters.
local R, H, G, Q, W, D, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local token, turn, member = ARGV[1], ARGV[2], ARGV[3]
local weight, capacity, step, presence = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local seen = redis.call('HMGET', R, 'u', 'g')
-- @include part/turn.lua
-- @include part/now.lua
-- @include part/fence.lua
-- @include permit/part/record.lua
-- @include permit/part/serve.lua
if not settled then return {-9} end

local function change()
  if weight == 0 or weight > capacity then return {-4} end
  local hold = hold_of(token)
  if not hold then return {-3} end
  if step < tonumber(hold.step) then return {-5} end
  local is_new, had = step > tonumber(hold.step), hold.weight
  hold.step = step
  local grows = growth and string.sub(growth.member, 1, 22) == token
  if weight > had and growth and not grows then
    if is_new then write(token, hold) end
    return {-7}
  end
  if grows then stop_growing() end -- until it is known what this change comes to
  local left = (redis.call('ZSCORE', H, token) or now) - now_us
  if weight == had then
    if is_new then write(token, hold) end
    return {2, 0, tonumber(hold.fence), left}
  end
  if weight < had or used - had + weight <= capacity then
    if weight > had then
      local number, fence = next_fence()
      if not number then
        if is_new then write(token, hold) end
        return {-6, 0, F, fence}
      end
      hold.fence = fence
      redis.call('ZADD', G, fence, token)
    end
    used, hold.weight, hold.capacity = used - had + weight, weight, capacity
    write(token, hold)
    return {1, 0, tonumber(hold.fence), left}
  end
  if is_new then write(token, hold) end
  if presence > 0 then
    growth = {member = member, weight = weight, capacity = capacity, present = now_us + 1000 * presence, called = '0'}
    write_growth()
  end
  local recheck = enough_ended(token, function(back) return used - had - back + weight <= capacity end)
  return {0, 0, presence > 0 and 0 or -1, recheck, now_us}
end

local answer = change()
serve()
answer[2] = more
return answer
