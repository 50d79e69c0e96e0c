-- queue_push: stores messages, all or none.
-- KEYS  T timeline, M messages, R deliveries, O outcomes, D dead letters, I names and keys, S settled names, H held,
--       J held by key, N counters, C clients that wait, L counted leases, X all queues
-- ARGV  queue, channel prefix, keep ms, most messages (0: no limit), then for each message: delay us, and with a ttl
--       ';' and that in us; 'k' to keep or 'r' to replace what is known, and the name, or '' for none; record
-- Returns the number (14 hex) of the last message, which those before it count up to, when none has a name; else for each
--         its number when it is stored, 'r' and its number when it took the place of another one, or the state of the known
--         one: 1 scheduled, 2 ready, 3 in flight, 4 dead, 5 settled; or -1 for all when the queue is full.
-- Atomic so that a batch is whole, payload and place belong together, and a name is given once. The first write is one
-- that a server out of memory refuses, so that it refuses all.
local queue, channel, keep, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- @include queue/part/keys.lua
-- @include queue/part/clock.lua
-- What a usual run does without. It is made when it is first needed, since making functions takes time.
local function make_seldom()
  -- @include queue/part/limit.lua
  -- @include queue/part/insert.lua
  -- @include queue/part/find.lua
  -- @include queue/part/known.lua

  -- Removes a message that waits, in favour of one of the same name. What that takes is made for each, since it is seldom.
  local function replace(id, place, score)
    -- @include queue/part/form.lua
    -- @include queue/part/key.lua
    -- @include queue/part/remove.lua

    remove(id, redis.call('HGET', M, id) or '', place, score)
  end
  -- @include queue/part/until_when.lua

  -- The due time, and the record with the end of the ttl: `times` is "delay;ttl".
  local function due_and_end(times, record)
    local delay, ttl = string.match(times, '^(%d+);(%d+)$')
    local due = now + delay
    return due, until_when(record, due + ttl)
  end

  return {
    known = known, replace = replace, due_and_end = due_and_end, expect = expect, wake_if_sooner = wake_if_sooner,
  }
end

-- @include queue/part/seldom.lua
tick()
-- Before the first write: a full queue refuses the whole batch.
if limit > 0 then
  local fresh = 0
  for i = 5, #ARGV, 3 do
    if ARGV[i + 1] == '' or not seldom().known(string.sub(ARGV[i + 1], 2)) then fresh = fresh + 1 end
  end
  if redis.call('HLEN', M) - redis.call('ZCARD', D) + fresh > limit then return -1 end
end

local there = redis.call('EXISTS', C, T, T) -- T counts twice
local empty, heard = there < 2, there % 2 == 1
-- A message's number is the time of its push: those of a batch end at now, unless that many were given already.
local count = (#ARGV - 4) / 3
if number < now - count then number = now - count end
local answers, named, batch, scores, records, soonest = {}, false, {}, {}, {}, math.huge
local times, delay, place_of, place_text = nil, nil, nil, nil -- those of the message before: most are as that one

local function store()
  save()
  -- Before they are there: it compares them with the head of the timeline as it was.
  if heard then seldom().expect(soonest) end
  redis.call('ZADD', T, unpack(scores))
  redis.call('HSET', M, unpack(records))
  scores, records = {}, {}
end

local function text_of(score)
  if score ~= place_of then place_of, place_text = score, string.format('%.0f', score) end
  return place_text
end

for i = 5, #ARGV, 3 do
  local name, record = ARGV[i + 1], ARGV[i + 2]
  if ARGV[i] ~= times then
    times = ARGV[i]
    delay = tonumber(times)
  end
  local due = delay and now + delay
  if not due then due, record = seldom().due_and_end(ARGV[i], record) end
  local state, old, place, score, replaces
  if name ~= '' then
    named = true
    replaces, name = string.sub(name, 1, 1) == 'r', string.sub(name, 2)
    -- An earlier message of this batch can be replaced only when it is stored.
    if batch[name] and replaces then store() end
    if batch[name] and not replaces then state = batch[name] else state, old, place, score = seldom().known(name) end
    replaces = replaces and (state == 1 or state == 2)
  end
  if state and not replaces then
    answers[#answers + 1] = state
  else
    number = number + 1
    local id = string.format('%014x', number)
    if name ~= '' then
      -- Before the first name is written: this is what a server out of memory refuses.
      if not next(batch) then save() end
      if replaces then made.replace(old, place, score) end
      redis.call('HSET', I, 'n' .. name, id)
      redis.call('ZREM', S, name)
      batch[name] = due <= now and 2 or 1
    end
    local n = #scores
    scores[n + 1], scores[n + 2] = text_of(2 * due), id
    records[n + 1], records[n + 2] = id, record
    if 2 * due < soonest then soonest = 2 * due end
    answers[#answers + 1] = replaces and 'r' .. id or id
  end
end
if #scores > 0 then
  store()
  if empty then redis.call('ZADD', X, 0, queue) end
  if heard then made.wake_if_sooner() end
end
if next(batch) then -- forgets a few names whose window has ended
  local ended = redis.call('ZRANGE', S, '-inf', now, 'BYSCORE', 'LIMIT', 0, 512)
  if #ended > 0 then redis.call('ZREM', S, unpack(ended)) end
end
return named and answers or string.format('%014x', number)
