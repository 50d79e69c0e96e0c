-- Part: receive(). Needs the part of settling; fences, floor, max, lease in us, client ('' for nobody).
-- Returns {now, next, expired, dead, postponed, orphans, then for each delivery: number, score before, state, record};
-- next is -2 paused, -1 never, 0 at once, else in so many us. Looks at 256 messages beyond those handed out, and stops
-- after 4 MiB, so that no run is long.
local PAGE, BYTES = 64, 4194304

-- What is due of the first `most`, and the score of the next one.
local function due(most)
  local found, ids, scores = redis.call('ZRANGE', T, 0, most, 'WITHSCORES'), {}, {}
  for i = 1, most do
    local score = found[2 * i]
    if not score or tonumber(score) > 2 * now + 1 then break end
    ids[i], scores[i] = found[2 * i - 1], score
  end
  return ids, scores, found[2 * #ids + 2]
end

-- The state of a first delivery, up to the fence, of a message that has nothing but a payload; nil of any other.
local function plain(id, score, record)
  local attempts = string.match(record, '^(%x%x%x%x)%-')
  local readable = attempts and attempts > '0000' and attempts <= '2710' and string.len(record) <= 1048581
  if readable and tonumber(score) % 2 == 0 and string.len(id) == 14 and not string.find(id, '[^0-9a-f]') then
    return '0001' .. attempts .. 'F--'
  end
end

local function receive()
  tick()
  local out, handed, bytes, looks = {now, 0, 0, 0, 0, 0}, 0, 0, 256
  local paused, most = string.find(marks, 'p', 1, true), max
  local listeners = client == '' and 0 or redis.call('ZCARD', C) -- now: what is handed out must not be lost to a damaged C
  if marks ~= '' then most = paused and 0 or math.min(max, seldom().room()) end
  if fences == 'clock' and fence < now then fence = now end
  if fence < floor then fence = floor end
  local leased, first = string.format('%.0f', 2 * (now + lease) + 1), nil
  while handed < most and looks > 0 and bytes < BYTES do
    -- The more was passed over, the more is looked at.
    local ids, scores, behind = due(math.min(most - handed + math.min(256 - looks, looks), PAGE))
    first = behind
    if #ids == 0 then break end
    local records, states = redis.call('HMGET', M, unpack(ids)), redis.call('HMGET', O, unpack(ids))
    local given, leases, running, n = {}, {}, {}, 0
    for i, id in ipairs(ids) do
      local record, state, turn, reason = records[i], states[i], '', ''
      local begun = record and not state and plain(id, scores[i], record)
      if not begun then begun, turn, reason = seldom().prepare(id, scores[i], record, state, out) end
      if begun then
        fence = fence + 1
        state = begun .. string.format('%014x', fence)
        n = n + 1
        given[n], leases[2 * n - 1], leases[2 * n] = id, leased, id
        running[2 * n - 1], running[2 * n] = id, state .. reason
        local last = #out
        out[last + 1], out[last + 2], out[last + 3], out[last + 4] = id, scores[i], state .. turn .. reason, record
        handed, bytes = handed + 1, bytes + string.len(record)
        if handed == most then break end
      else
        looks = looks - 1
        if turn then break end -- the order changed
      end
    end
    if made then made.put_held() end
    if n > 0 then
      -- What works without memory first: it lets the others work.
      if made or not written then redis.call('HDEL', O, unpack(given)) end
      redis.call('ZADD', T, unpack(leases))
      redis.call('HSET', R, unpack(running))
      if marks ~= '' then made.count(given, now + lease) end
    end
  end
  if made and not paused then
    first = redis.call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
  elseif handed > 0 and (not first or tonumber(first) > tonumber(leased)) then
    first = leased
  end
  if paused or not first then
    out[2] = paused and -2 or -1
  else
    local at = math.floor(tonumber(first) / 2)
    if marks ~= '' then at = math.max(at, made.room_at()) end
    out[2] = math.min(math.max(at - now, 0), FAR) -- a score by a foreign hand may be any
  end
  if handed > 0 or stepped or now > clock + 1000000 then
    if handed == 0 then redis.call('HDEL', O, '') end -- works without memory, and lets the next one work
    save()
  end
  if client ~= '' then
    if handed < max then
      redis.call('HDEL', O, '')
      out[2] = seldom().listen(client, out[2])
    elseif listeners > 0 then
      redis.call('ZREM', C, client) -- it has all it wants, and others may have to look after the rest
      seldom().watch_over()
    end
  end
  return out
end
