-- Part: the notification of waiters. Needs the parts of record and fence; claim, the ms that a notified waiter has to ask; channel,
-- what the clients' wake-up channels begin with.
-- Declares at, how many waiters at the front were notified, or ask now, and still fit; reserved, their weight; least, the least
-- capacity that one of them named; more, 1 if one run notified as many as it may, and permit_pass has to continue.
local at, reserved, least, even, known, more, turns = 0, 0, math.huge, true, nil, 0, 8

-- The terms of a waiter, or nil.
local function parse_terms(text)
  local weight, capacity, called, ttl, label = string.match(text or '', '^(%d+);(%d+);(%d);(%d+);(.*)$')
  return weight and {weight = tonumber(weight), capacity = tonumber(capacity), called = called, ttl = ttl, label = label}
end

local function terms_of(member)
  return parse_terms(redis.call('HGET', D, member))
end

local function form_terms(weight, capacity, called, ttl, label)
  return weight .. ';' .. capacity .. ';' .. called .. ';' .. ttl .. ';' .. label
end

-- Whether a weight fits beside the holds and behind so many waiters.
local function has_room(before, weight, capacity)
  return used + weight <= capacity and holders + before < most
end

-- What was found at the front is not known any more.
local function forget()
  at, reserved, least, even, known = 0, 0, math.huge, true, nil
  redis.call('HDEL', D, '#')
end

-- A waiter that fits leaves the line.
local function leave(member, terms)
  drop(member)
  if not even then return forget() end
  at, reserved = at - 1, reserved - terms.weight
  if at == 0 then least = math.huge end
end

local function publish(member, news)
  return redis.call('PUBLISH', channel .. string.sub(member, 24), string.sub(member, 1, 22) .. news) > 0
end

-- Notifies the hold that waits for more, once that fits. Returns true if it still waits.
local function call_growth()
  local hold = hold_of(string.sub(growth.member, 1, 22))
  if growth.called == '1' or used - hold.weight + growth.weight > growth.capacity then return true end
  if publish(growth.member, '') then
    growth.called = '1'
    write_growth()
    return true
  end
  stop_growing() -- it does not ask any more
  return false
end

-- Fences that are left of those that one command reserved, for holds that are handed over one after the other.
local newest, newest_text, spare = nil, nil, 0

-- Gives the turn to a waiter that fits: the hold itself, if it takes it without asking and is the first; or a wake-up, and then
-- it has the claim window to ask. Returns false if it has to leave the line, with its hold or because its client does not
-- listen.
local function give_turn(member, terms)
  local follows = spare > 0
  turns = turns - 1
  if at > 0 or terms.ttl == '0' then
    newest = nil
  elseif follows then
    newest, spare = newest + 1, spare - 1
    newest_text = string.format('%.0f', newest)
  else
    newest, newest_text, spare = next_fence()
    spare = newest and spare - 1 or 0
  end
  if not newest then -- also if there is no fence: it asks, and learns what is wrong
    spare = 0
    if not publish(member, '') then return false end
    redis.call('HSET', D, member, form_terms(terms.weight, terms.capacity, '1', terms.ttl, terms.label))
    redis.call('ZADD', W, 'LT', now_us + 1000 * claim, member)
    return true
  end
  -- Written before it is sent: a waiter that receives the hold has it.
  local token, span = string.sub(member, 1, 22), math.min(terms.ttl, claim)
  add(token, {fence = newest_text, weight = terms.weight, capacity = terms.capacity, since = now, ttl = span, handed = '1', step = '0',
    label = terms.label}, now_us + 1000 * span, follows)
  if not publish(member, ';' .. newest_text .. ';' .. now .. ';' .. span .. ';1') then
    remove(token, terms.weight)
    spare = 0 -- perhaps with the keys
  end
  return false
end

-- Gives the turn to the hold that waits for more, or to all waiters at the front that fit, one after the other. An asker need
-- not be notified.
local function serve(asker)
  if growth and call_growth() then return end
  local last = at
  spare = 0 -- other fences may have been given since
  repeat
    local waiters = redis.call('ZRANGE', Q, at, last)
    local texts = waiters[1] and redis.call('HMGET', D, '#', unpack(waiters))
    if texts and at == 0 and texts[1] and not known then
      known = texts[1]
      local number, weight, capacity = string.match(known, '^(%d+);(%d+);(%d+)$')
      number, weight, capacity = tonumber(number), tonumber(weight), tonumber(capacity)
      -- All of them fit still: the others are behind them.
      if number and has_room(number - 1, weight, capacity) then
        at, reserved, least, last = number, weight, capacity, number
        waiters, texts = redis.call('ZRANGE', Q, at, last), nil
        texts = waiters[1] and redis.call('HMGET', D, '#', unpack(waiters))
      end
    end
    local gone = {}
    for i, member in ipairs(waiters) do
      local terms = parse_terms(texts[i + 1])
      if not terms then
        gone[#gone + 1] = member -- a foreign hand changed it: its client asks again
      else
        local limit = math.min(least, terms.capacity)
        if not has_room(at, reserved + terms.weight, limit) then
          waiters = {}
          break
        end
        local called = terms.called == '1' or member == asker
        if not called and turns == 0 then
          more, waiters = 1, {}
          break
        end
        if called or give_turn(member, terms) then
          even = even and (at == 0 or terms.capacity == least)
          at, reserved, least = at + 1, reserved + terms.weight, limit
        else
          gone[#gone + 1] = member
        end
      end
    end
    if gone[1] then drop(unpack(gone)) end
    last = at + 15
  until not waiters[1]
  -- A long front is remembered, so that the next request need not look at each of them.
  local front = even and at >= 8 and string.format('%.0f;%.0f;%.0f', at, reserved, least)
  if front and front ~= known then
    redis.call('HSET', D, '#', front)
  elseif known and not front then
    redis.call('HDEL', D, '#')
  end
  known = front
end
