-- Part: flag_of(value) is the flag of a value in our own format, else nil: '<token>;<flag>;<fence>;<by how many µs that was
-- ahead of the clock, if it was>;<label>'.
local function flag_of(value)
  if type(value) ~= 'string' then return nil end
  local token, flag = string.match(value, '^([%w_%-]+);([hw%-]);%d+;%-?%d*;')
  if token and string.len(token) == 22 then return flag end
  return nil
end
