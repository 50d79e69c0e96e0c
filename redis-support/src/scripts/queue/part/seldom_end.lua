end

-- nil until it was needed.
local made
local function seldom()
  made = made or make_seldom()
  return made
end
