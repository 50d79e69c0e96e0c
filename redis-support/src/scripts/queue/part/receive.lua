-- Part: receive() and floor_ahead(). Needs the part of settling; fences, floor, max, lease in us, client ('' for none).
-- Returns {now, next, expired, dead, postponed, orphans, then for each delivery: number, how late in us, state, record};
-- next is -2 paused, -1 never, 0 at once, else in so many us. Looks at 256 messages beyond those handed out, and stops
-- after 4 MiB, so that no run is long.
local PAGE, BYTES, DAY = 64, 4194304, 86400000000

-- What is due of the first `most`: numbers, scores, and whether a lease ended with them; then the score of the next one.
local function due(most)
  local found, ids, scores, ended, last, value = redis.call('ZRANGE', T, 0, most, 'WITHSCORES'), {}, {}, {}, nil, nil
  for i = 1, most do
    local score = found[2 * i]
    if score ~= last then last, value = score, tonumber(score) end
    if not score or value > 2 * now + 1 then break end
    ids[i], scores[i], ended[i] = found[2 * i - 1], value, value % 2 == 1
  end
  return ids, scores, ended, found[2 * #ids + 2]
end

-- The state of a first delivery, as string.format takes it with the fence, by how the record begins: if that of a message
-- that has nothing but a payload.
local function plain(head)
  local attempts = string.match(head, '^(%x%x%x%x)%-$')
  return attempts and attempts > '0000' and attempts <= '2710' and '0001' .. attempts .. 'F--%014x'
end

-- The floor, if it is more than a day ahead of the clock: then no fence can be given. A counter that is so ahead is damaged.
-- To be asked before anything is changed.
local function floor_ahead()
  tick()
  if fence > now + DAY then damaged(redis.call('GET', N)) end
  return floor > now + DAY and floor
end

local function receive()
  tick()
  local out, handed, bytes, looks = {now, 0, 0, 0, 0, 0}, 0, 0, 256
  local paused, most = string.find(marks, 'p', 1, true), max
  local listeners = client == '' and 0 or redis.call('ZCARD', C) -- now: what is handed out must not be lost to a damaged C
  if marks ~= '' then most = paused and 0 or math.min(max, seldom().room()) end
  if fences == 'clock' and fence < now then fence = now end
  if fence < floor then fence = floor end
  local leased, first, head, form = string.format('%.0f', 2 * (now + lease) + 1), nil, nil, nil
  local sub, find, format = string.sub, string.find, string.format
  while handed < most and looks > 0 and bytes < BYTES do
    -- The more was passed over, the more is looked at.
    local ids, scores, ended, behind = due(math.min(most - handed + math.min(256 - looks, looks), PAGE))
    first = behind
    if #ids == 0 then break end
    local records, states = redis.call('HMGET', M, unpack(ids)), {}
    if #ids < 4 or redis.call('EXISTS', O) == 1 then states = redis.call('HMGET', O, unpack(ids)) end
    local given, leases, running, again, n = {}, {}, {}, {}, 0
    for i = 1, #ids do
      local id, record, state, turn, reason, begun = ids[i], records[i], states[i], '', '', nil
      if record and not state and not ended[i] and #record <= 1048581 and #id == 14 and find(id, '^[0-9a-f]+$') then
        local begins = sub(record, 1, 5)
        if begins ~= head then head, form = begins, plain(begins) end
        begun = form
      end
      if not begun then begun, turn, reason = seldom().prepare(id, ended[i], scores[i], record, state, out) end
      if begun then
        if state then again[#again + 1] = id end
        fence = fence + 1
        state = format(begun, fence)
        n = n + 1
        given[n], leases[2 * n - 1], leases[2 * n] = id, leased, id
        running[2 * n - 1], running[2 * n] = id, state .. reason
        local last = 6 + 4 * handed
        out[last + 1], out[last + 2] = id, now - (ended[i] and scores[i] - 1 or scores[i]) / 2
        out[last + 3], out[last + 4] = state .. turn .. reason, record
        handed, bytes = handed + 1, bytes + #record
        if handed == most then break end
      else
        looks = looks - 1
        if turn then break end -- the order changed
      end
    end
    if made then made.put_held() end
    if n > 0 then
      -- What works without memory first: it lets the others work.
      if #again > 0 then redis.call('HDEL', O, unpack(again)) elseif not written then redis.call('HDEL', O, '') end
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
