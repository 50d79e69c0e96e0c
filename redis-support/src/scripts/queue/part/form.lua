-- Part: the form of what is stored.
-- A record (in M) is: attempts (4 hex), '-' or '+', and after '+': cause of the first delivery (1), window in us (14 hex),
-- until when it may be delivered (14 hex, zeros for ever), lengths of name (2 hex), key (2 hex), lock (4 hex) and recurrence
-- (4 hex), name, key, lock, recurrence. Then the payload.
-- A state (in R while delivered, in O otherwise) is: attempt (4 hex), attempts (4 hex), cause (1), '-' or '+' as in the
-- record, doom ('-', 'E' exhausted, 'R' rejected, 'T' too late, 'X' damaged), fence (14 hex, zeros when no receipt is valid), then the turn,
-- if the message was given one, then the reason ('=' and its text, or nothing). A turn is '@', token (22), fence (16 hex),
-- length of the lock's name (4 hex), the name.
-- A foreign hand may have changed anything: what is read is checked, and no form of it fails a script.
local NO_FENCE = '00000000000000'
local BLANK = '00000001F--' .. NO_FENCE

-- Whether it is a message's number.
local function is_number(id)
  return string.len(id) == 14 and not string.find(id, '[^0-9a-f]')
end

-- What is wrong with a record (nil when it can be read); then its name, key and window, '' for what it does not have, until
-- when it may be delivered (0: for ever), and where its recurrence and its payload begin.
local function read(record)
  local attempts, sign = string.match(record, '^(%x%x%x%x)([-+])')
  if not attempts or attempts == '0000' or attempts > '2710' then return 'its head is cut or foreign' end
  if sign == '-' then
    return string.len(record) - 5 > 1048576 and 'its payload is too long' or nil, '', '', 0, 0, 6, 6
  end
  local window, expires, lengths = string.match(record,
    '^[FP](%x%x%x%x%x%x%x%x%x%x%x%x%x%x)(%x%x%x%x%x%x%x%x%x%x%x%x%x%x)(%x%x%x%x%x%x%x%x%x%x%x%x)', 6)
  if not window then return 'its head is cut or foreign' end
  local key = 47 + tonumber(string.sub(lengths, 1, 2), 16)
  local lock = key + tonumber(string.sub(lengths, 3, 4), 16)
  local recurrence = lock + tonumber(string.sub(lengths, 5, 8), 16)
  local payload = recurrence + tonumber(string.sub(lengths, 9, 12), 16)
  local rest = string.len(record) + 1 - payload
  if rest < 0 or key > 175 or lock - key > 128 or recurrence - lock > 512 or payload - recurrence > 256 then
    return 'its lengths do not fit'
  end
  if rest > 1048576 then return 'its payload is too long' end
  return nil, string.sub(record, 47, key - 1), string.sub(record, key, lock - 1), tonumber(window, 16),
    tonumber(expires, 16), recurrence, payload
end

-- What is wrong with a state; nil when it can be read and belongs to the record.
local function flaw_of_state(state, record)
  local sign = string.match(state, '^%x%x%x%x%x%x%x%x[FTBPLD]([-+])[-ERTX]%x%x%x%x%x%x%x%x%x%x%x%x%x%x')
  if sign ~= string.sub(record, 5, 5) then return 'its state is cut or foreign' end
end

local function attempt_of(state)
  return tonumber(string.sub(state, 1, 4), 16) or 0
end

-- Name, key and window of a record; '' for what it does not have, and for all of a damaged one.
local function about(record)
  local why, name, key, window = read(record)
  if why then return '', '', 0 end
  return name, key, window
end

-- The state before the first delivery.
local function first_state(record)
  if read(record) then return BLANK end
  local extended = string.sub(record, 5, 5) == '+'
  local cause = extended and string.sub(record, 6, 6) or 'F'
  return '0000' .. string.sub(record, 1, 4) .. cause .. string.sub(record, 5, 5) .. '-' .. NO_FENCE
end

-- Where the reason begins in a state.
local function reason_at(state)
  if string.byte(state, 26) ~= 64 then return 26 end -- '@'
  return 69 + (tonumber(string.sub(state, 65, 68), 16) or 0)
end

local function reason_of(state)
  return string.sub(state, reason_at(state))
end

-- A state with another attempt, cause and doom, without receipt and turn; the reason stays unless one is given.
local function after(state, attempt, cause, doom, reason)
  return string.format('%04x', math.max(attempt, 0)) .. string.sub(state, 5, 8) .. cause .. string.sub(state, 10, 10) .. doom
    .. NO_FENCE .. (reason or reason_of(state))
end

-- The record of a message that comes again: for ever, and with this recurrence.
local function again(record, recurrence)
  local _, _, _, window, _, from, payload = read(record)
  local lengths, names = '00000000', ''
  if string.sub(record, 5, 5) == '+' then lengths, names = string.sub(record, 35, 42), string.sub(record, 47, from - 1) end
  return string.sub(record, 1, 4) .. '+F' .. string.format('%014x', window) .. NO_FENCE .. lengths
    .. string.format('%04x', string.len(recurrence)) .. names .. recurrence .. string.sub(record, payload)
end
