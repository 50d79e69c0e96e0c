-- Part: answer(others, count) is the reply of a renewal of so many, from what differs from ttl: the ms by the number of the lease. Needs ttl.
local function answer(others, count)
  if not next(others) then return tonumber(ttl) end
  for i = 1, count do others[i] = others[i] or tonumber(ttl) end
  return others
end
