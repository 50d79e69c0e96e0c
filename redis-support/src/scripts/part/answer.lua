-- Part: answer(others) is the reply of a renewal, from what differs from ttl: the ms by the number of the key. Needs ttl.
local function answer(others)
  if not next(others) then return tonumber(ttl) end
  for i = 1, #KEYS do others[i] = others[i] or tonumber(ttl) end
  return others
end
