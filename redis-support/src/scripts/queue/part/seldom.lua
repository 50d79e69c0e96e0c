-- Part: seldom(). Needs make_seldom(), which makes what a usual run does without.

-- nil until it was needed.
local made
local function seldom()
  made = made or make_seldom()
  return made
end
