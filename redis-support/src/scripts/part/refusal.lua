-- Part: refusal(). A read under pcall may fail because the key is of another kind, which is an answer; any other
-- failure (a missing right) must not look like one. Returns what the script has to return then, or nil.
local function refusal(reply, command)
  if type(reply) ~= 'table' or not reply.err or string.find(reply.err, 'WRONGTYPE', 1, true) then return nil end
  return redis.error_reply(reply.err .. ' [' .. command .. ']')
end
