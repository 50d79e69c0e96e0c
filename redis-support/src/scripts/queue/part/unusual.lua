-- Part: prepare() and put_held(). Needs the parts of form, keys and burial. For messages that are due and have a history,
-- a name, a key or a lock, or cannot be read.
local put_aside, put_aside_in_j = {}, {} -- those that are to be held, as ZADD takes them
local in_flight = {} -- the message in flight of each key that was asked for, false when there is none

local function put_held()
  if #put_aside == 0 then return end
  local ids = {}
  for i = 2, #put_aside, 2 do ids[i / 2] = put_aside[i] end
  redis.call('ZREM', T, unpack(ids))
  redis.call('ZADD', H, unpack(put_aside))
  redis.call('ZADD', J, unpack(put_aside_in_j))
  put_aside, put_aside_in_j = {}, {}
end

-- Whether another message of the key is in flight.
local function must_wait(id, key)
  if taken[key] then return true end
  local other = in_flight[key]
  if other == nil then
    other = redis.call('HGET', I, 'k' .. key)
    if other and redis.call('HEXISTS', R, other) == 0 then other = false end
    in_flight[key] = other
  end
  return other and other ~= id
end

-- What is wrong with a message that is due, how it has to die ('-': it does not), and its key.
local function examine(id, record, state)
  local why, _, key, _, expires = read(record)
  why = why or (state and flaw_of_state(state, record))
  if not is_number(id) then why = 'its number is foreign' end
  if why then return why, 'X' end
  local doom = state and string.sub(state, 11, 11) or '-'
  if state and doom == '-' and attempt_of(state) >= tonumber(string.sub(state, 5, 8), 16) then doom = 'E' end
  if doom == '-' and expires > 0 and expires < now then doom = 'T' end
  return nil, doom, key
end

-- Makes a message ready for its delivery: its state, as string.format takes it with the fence, its turn and the reason. Or
-- moves it out of the way: nil, and whether the order of the others changed. `counts` is what a receive returns.
local function prepare(id, ended, score, record, state, counts)
  -- A delivery whose lease ended was not settled, so its state is in R still.
  if ended then state = redis.call('HGET', R, id) or state end
  if not record then
    redis.call('ZREM', T, id)
    redis.call('HDEL', R, id)
    redis.call('HDEL', O, id)
    counts[6] = counts[6] + 1
    return nil, false
  end
  if ended then counts[3] = counts[3] + 1 end
  local why, doom, key = examine(id, record, state)
  if not why then state = state or first_state(record) end
  if doom ~= '-' then
    put_held() -- one of them may go now
    -- A death can free a key, and then earlier reads of keys are out of date.
    in_flight = {}
    local dead, freed
    if why then
      dead, freed = bury_damaged(id, record, state, why)
    else
      if ended then state = string.sub(state, 1, 25) .. '=the lease of its last delivery ended' end
      dead, freed = bury(id, state, doom, record)
    end
    local place = dead and 4 or 5
    counts[place] = counts[place] + 1
    return nil, freed
  end
  local attempt = attempt_of(state)
  if key ~= '' and must_wait(id, key) then
    if ended then
      redis.call('HDEL', R, id)
      redis.call('HSET', O, id, after(state, attempt, 'L', '-'))
    end
    local at, n = math.floor(tonumber(score) / 2), #put_aside
    put_aside[n + 1], put_aside[n + 2] = at, id
    put_aside_in_j[n + 1], put_aside_in_j[n + 2] = 0, place_in_j(key, at, id)
    return nil, false
  end
  if key ~= '' then
    taken[key] = true
    redis.call('HDEL', O, id)
    redis.call('HSET', I, 'k' .. key, id)
  end
  local reason = reason_of(state)
  local turn = string.sub(state, 26, -1 - string.len(reason)) -- of this delivery alone
  local cause = ended and 'L' or string.sub(state, 9, 9)
  local beginning = string.format('%04x', attempt + 1) .. string.sub(state, 5, 8) .. cause .. string.sub(state, 10, 11)
    .. '%014x'
  return beginning, turn, reason
end
