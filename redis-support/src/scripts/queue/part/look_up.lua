-- Part: look_up(). Needs keys and form.

-- The number and record that an id means: '#' and a number, or 'n' and a name.
local function look_up(id)
  local named = string.sub(id, 1, 1) == 'n'
  local found = string.sub(id, 2)
  if named then found = redis.call('HGET', I, id) end
  local record = found and redis.call('HGET', M, found)
  if not record then return nil end
  if not named and about(record) ~= '' then return nil end
  return found, record
end
