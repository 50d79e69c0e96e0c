-- Part: until_when(). The record, of those that have more than a payload, of a message that may be delivered until `time`.
local function until_when(record, time)
  return string.sub(record, 1, 20) .. string.format('%014x', time) .. string.sub(record, 35)
end
