-- Part: receive(). Needs the parts of settling, and listening; fences, max, lease in us, client ('' for nobody).
-- Returns {now, next, expired, dead, postponed, orphans, then for each delivery: number, score before, state, record};
-- next is -2 paused, -1 never, 0 at once, else in so many us. Looks at 256 messages beyond those handed out, 64 at a
-- time, and stops after 4 MiB, so that no run is long.
local PAGE, BYTES, FAR = 64, 4194304, 4503599627370496 -- FAR: a score by a foreign hand may be any
local counts

-- One page: sorts what is due into what is handed out and the rest, until the order may have changed.
local function sort_page(due, ids, records, looks)
  local found, odd = redis.call('HMGET', O, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if tonumber(due[2 * i]) % 2 == 1 then odd[#odd + 1] = id end
  end
  local running, o = #odd > 0 and redis.call('HMGET', R, unpack(odd)) or {}, 0
  local page = {}
  for i, id in ipairs(ids) do
    local record, state, ended = records[i], found[i], tonumber(due[2 * i]) % 2 == 1
    if ended then
      o = o + 1
      state = running[o] or state
    end
    if not record then
      looks = looks - 1
      redis.call('ZREM', T, id)
      redis.call('HDEL', R, id)
      redis.call('HDEL', O, id)
      counts.orphans = counts.orphans + 1
    else
      if ended then counts.expired = counts.expired + 1 end
      local why = flaw(record) or (state and flaw_of_state(state, record))
      if not is_number(id) then why = 'its number is foreign' end
      local attempt, doom, _, key
      if why then
        doom = 'X'
      else
        state = state or first_state(record)
        attempt, doom = attempt_of(state), string.sub(state, 11, 11)
        if doom == '-' and attempt >= tonumber(string.sub(state, 5, 8), 16) then doom = 'E' end
        _, key = about(record)
      end
      if doom ~= '-' then
        looks = looks - 1
        local done, freed
        if why then
          done, freed = bury_damaged(id, record, state, why)
        else
          if ended then state = string.sub(state, 1, 25) .. '=the lease of its last delivery ended' end
          done, freed = bury(id, state, doom, record)
        end
        if done then counts.dead = counts.dead + 1 else counts.postponed = counts.postponed + 1 end
        if freed then return page, looks end
      elseif key ~= '' and is_busy(id, key) then
        looks = looks - 1
        if ended then
          redis.call('HDEL', R, id)
          redis.call('HSET', O, id, after(state, attempt, 'L', '-'))
        end
        hold(id, key, math.floor(tonumber(due[2 * i]) / 2))
      else
        if key ~= '' then
          taken[key] = true
          redis.call('HDEL', O, id)
          redis.call('HSET', I, 'k' .. key, id)
        end
        page[#page + 1] = {id, due[2 * i], state, record, ended}
      end
    end
  end
  return page, looks
end

-- Leases a page; adds it to `out`.
local function hand_out(page, out)
  local ids, scores, states = {}, {}, {}
  local score = string.format('%.0f', 2 * (now + lease) + 1)
  for i, one in ipairs(page) do
    local id, state = one[1], one[3]
    local reason = reason_of(state)
    local turn = string.sub(state, 26, -1 - string.len(reason)) -- of this delivery alone
    fence = fence + 1
    local cause = one[5] and 'L' or string.sub(state, 9, 9)
    state = string.format('%04x', tonumber(string.sub(state, 1, 4), 16) + 1) .. string.sub(state, 5, 8) .. cause
      .. string.sub(state, 10, 11) .. string.format('%014x', fence)
    ids[i] = id
    scores[2 * i - 1], scores[2 * i] = score, id
    states[2 * i - 1], states[2 * i] = id, state .. reason
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = id, one[2], state .. turn .. reason, one[4]
  end
  redis.call('HDEL', O, unpack(ids)) -- first, because it works without memory and lets the others work
  redis.call('ZADD', T, unpack(scores))
  redis.call('HSET', R, unpack(states))
end

local function receive()
  tick()
  counts = {expired = 0, dead = 0, postponed = 0, orphans = 0}
  local out, handed, bytes, looks = {now, 0, 0, 0, 0, 0}, 0, 0, 256
  local paused = redis.call('EXISTS', Z) == 1
  if fences == 'clock' and fence < now then fence = now end
  while not paused and handed < max and looks > 0 and bytes < BYTES do
    local most = math.min(max - handed, PAGE)
    local due = redis.call('ZRANGE', T, '-inf', 2 * now + 1, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
    if #due == 0 then break end
    local ids = {}
    for i = 1, #due / 2 do ids[i] = due[2 * i - 1] end
    local page
    page, looks = sort_page(due, ids, redis.call('HMGET', M, unpack(ids)), looks)
    if #page > 0 then
      hand_out(page, out)
      handed = handed + #page
      for _, one in ipairs(page) do bytes = bytes + string.len(one[4]) end
    end
  end
  local first = not paused and redis.call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
  out[2] = paused and -2 or first and math.min(math.max(math.floor(tonumber(first) / 2) - now, 0), FAR) or -1
  out[3], out[4], out[5], out[6] = counts.expired, counts.dead, counts.postponed, counts.orphans
  if handed > 0 or stepped or now > clock + 1000000 then
    if handed == 0 then redis.call('HDEL', O, '') end -- works without memory, and lets the next one work
    save()
  end
  if client ~= '' then
    if handed < max then
      redis.call('HDEL', O, '')
      out[2] = listen(client, out[2])
    elseif redis.call('ZCARD', C) > 0 then
      redis.call('ZREM', C, client) -- it has all it wants, and others may have to look after the rest
      watch_over()
    end
  end
  return out
end
