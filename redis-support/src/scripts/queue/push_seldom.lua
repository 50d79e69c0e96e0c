
-- The due time, and the record with the end of the ttl: `times` is "delay;ttl".
local function due_and_end(times, record)
  local delay, ttl = string.match(times, '^(%d+);(%d+)$')
  local due = now + delay
  return due, until_when(record, due + ttl)
end

return {
  known = known, replace = replace, due_and_end = due_and_end, expect = expect, wake_if_sooner = wake_if_sooner,
}
