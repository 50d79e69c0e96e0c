-- Part: the record of one name of permits, of which ended leases and absent waiters are removed first. Needs the clock; the keys
-- below; seen, the fields u and g of R. All times are in µs of the server's clock.
--   R  HASH  u: the weight of all holds; g: the hold that waits for more, '<member>;<weight>;<capacity>;<presence's
--            end>;<called 1|0>'; and by token each hold, '<fence>;<weight>;<capacity>;<since>;<ttl ms>;<handed over
--            1|0>;<step>;<label>'
--   H  ZSET  tokens of holds by the ends of their leases     G  ZSET  the same by fence
--   Q  ZSET  waiters by arrival                              W  ZSET  the same by the ends of their presence
--   D  HASH  by waiter its terms, '<weight>;<capacity>;<called 1|0>;<ttl ms of a hold that it takes without asking, or 0>;
--            <label>'; and perhaps '#', what serve found at the front
-- A waiter is a member, '<token>@<client>'. R, H and G exist while there are holds.
-- Declares used, holders, growth, settled (false if there is more to remove than one run may: it has to run again), and
-- functions. What a function changes is written at once.
-- @include part/line.lua
local most = 1024 -- holders of one name
local used, holders = tonumber(seen[1] or '0'), redis.call('ZCARD', H)
local growth, settled = nil, true

local function damaged(key, found)
  error('DAMAGED ' .. key .. '|' .. string.gsub(string.sub(found, 1, 64), '[^%w ;,.+-]', '?') .. '|', 0)
end

local function read(text)
  local fence, weight, capacity, since, ttl, handed, step, label =
    string.match(text, '^(%d+);(%d+);(%d+);(%d+);(%d+);(%d);(%d+);(.*)$')
  if not fence then damaged(R, text) end
  return {fence = fence, weight = tonumber(weight), capacity = tonumber(capacity), since = since, ttl = ttl, handed = handed,
    step = step, label = label}
end

-- The hold of a token, or nil.
local function hold_of(token)
  local text = redis.call('HGET', R, token)
  return text and read(text)
end

local function write(token, hold)
  local text = hold.fence .. ';' .. hold.weight .. ';' .. hold.capacity .. ';' .. hold.since .. ';' .. hold.ttl .. ';'
    .. hold.handed .. ';' .. hold.step .. ';' .. hold.label
  redis.call('HSET', R, 'u', used, token, text)
end

local function clear()
  redis.call('DEL', R, H, G)
  used, holders, growth = 0, 0, nil
end

local function stop_growing()
  growth = nil
  redis.call('HDEL', R, 'g')
end

local function write_growth()
  redis.call('HSET', R, 'g', growth.member .. ';' .. growth.weight .. ';' .. growth.capacity .. ';'
    .. string.format('%.0f', growth.present) .. ';' .. growth.called)
end

-- Makes the keys last for twice as long as a lease at least, so that few have to do this.
local function outlast(ttl)
  local longest = math.max(120000, 4 * ttl)
  if redis.call('PTTL', R) < longest / 2 then
    redis.call('PEXPIRE', R, longest)
    redis.call('PEXPIRE', H, longest)
    redis.call('PEXPIRE', G, longest)
  end
end

-- Adds a hold whose lease ends then. If it follows others of the same run, the keys last long enough.
local function add(token, hold, ends, follows)
  used, holders = used + hold.weight, holders + 1
  write(token, hold)
  redis.call('ZADD', H, ends, token)
  redis.call('ZADD', G, hold.fence, token)
  if not follows then outlast(hold.ttl) end
end

-- Makes a lease end then, never earlier than it did.
local function lengthen(token, ends)
  redis.call('ZADD', H, 'XX', 'GT', ends, token)
  outlast((ends - now_us) / 1000)
end

-- Removes a hold, which waits for more no longer either.
local function remove(token, weight)
  used, holders = used - weight, holders - 1
  if used <= 0 then return clear() end
  if growth and string.sub(growth.member, 1, 22) == token then stop_growing() end
  redis.call('HDEL', R, token)
  redis.call('HSET', R, 'u', used)
  redis.call('ZREM', H, token)
  redis.call('ZREM', G, token)
end

-- Returns how many µs from now enough leases have ended, if no client gives anything back before: fits decides for the weight
-- and the number of those that ended. No more than 16 are looked at. -1 if there is none.
local function enough_ended(other_than, fits)
  local recheck, back, ended = -1, 0, 0
  local first = redis.call('ZRANGE', H, '0', '16', 'WITHSCORES')
  local tokens = {}
  for i = 1, #first, 2 do tokens[#tokens + 1] = first[i] end
  local texts = tokens[1] and redis.call('HMGET', R, unpack(tokens)) or {}
  for i, token in ipairs(tokens) do
    if token ~= other_than and texts[i] then
      back, ended, recheck = back + read(texts[i]).weight, ended + 1, first[2 * i] - now_us
      if ended == 16 or fits(back, ended) then break end
    end
  end
  return recheck
end

if not used then damaged(R, seen[1]) end
local ended = redis.call('ZRANGE', H, '-inf', now, 'BYSCORE', 'LIMIT', '0', budget)
if ended[1] then
  local texts = redis.call('HMGET', R, unpack(ended))
  for i = 1, #ended do
    if texts[i] then used = used - read(texts[i]).weight end
  end
  holders, settled = holders - #ended, #ended < budget
  redis.call('HDEL', R, unpack(ended))
  if used > 0 then redis.call('HSET', R, 'u', used) end
  redis.call('ZREM', H, unpack(ended))
  redis.call('ZREM', G, unpack(ended))
end
if holders <= 0 or used <= 0 then
  if seen[1] or holders > 0 then clear() end -- also what a foreign hand left of them
elseif seen[2] then
  local member, weight, capacity, present, called = string.match(seen[2], '^([^;]+);(%d+);(%d+);(%d+);(%d)$')
  if not member then damaged(R, seen[2]) end
  growth = {member = member, weight = tonumber(weight), capacity = tonumber(capacity), present = tonumber(present), called = called}
  if growth.present <= now_us or redis.call('HEXISTS', R, string.sub(member, 1, 22)) == 0 then stop_growing() end
end
local absent = redis.call('ZRANGE', W, '-inf', now, 'BYSCORE', 'LIMIT', '0', budget)
if absent[1] then
  drop('#', unpack(absent))
  settled = settled and #absent < budget
end
