-- Part: begins make_seldom(), which the part seldom_end ends: what a usual run does without. It is made when it is first
-- needed, since making functions takes time. What it gives is told before its end.
local function make_seldom()

