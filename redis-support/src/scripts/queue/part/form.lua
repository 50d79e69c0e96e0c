-- Part: the form of what is stored.
-- A record (in M) is: attempts (4 hex), '-' or '+', and after '+': cause of the first delivery (1), window in us
-- (14 hex), lengths of name (2 hex), key (2 hex) and lock (4 hex), name, key, lock. Then the payload.
-- A state (in R while delivered, in O otherwise) is: attempt (4 hex), attempts (4 hex), cause (1), '-' or '+' as in the
-- record, doom ('-', 'E' exhausted, 'R' rejected), fence (14 hex, zeros when no receipt is valid), then the reason.
local NO_FENCE = '00000000000000'

-- Name, key and window of a record; '' for what it does not have.
local function about(record)
  if string.sub(record, 5, 5) ~= '+' then return '', '', 0 end
  local key = 29 + tonumber(string.sub(record, 21, 22), 16)
  local lock = key + tonumber(string.sub(record, 23, 24), 16)
  local window = tonumber(string.sub(record, 7, 20), 16)
  return string.sub(record, 29, key - 1), string.sub(record, key, lock - 1), window
end

-- The state before the first delivery.
local function first_state(record)
  local extended = string.sub(record, 5, 5) == '+'
  local cause = extended and string.sub(record, 6, 6) or 'F'
  return '0000' .. string.sub(record, 1, 4) .. cause .. string.sub(record, 5, 5) .. '-' .. NO_FENCE
end

-- A state with another attempt, cause and doom, without a receipt; the reason stays unless one is given.
local function after(state, attempt, cause, doom, reason)
  return string.format('%04x', attempt) .. string.sub(state, 5, 8) .. cause .. string.sub(state, 10, 10) .. doom
    .. NO_FENCE .. (reason or string.sub(state, 26))
end
