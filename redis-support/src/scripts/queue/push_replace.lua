
-- Removes a message that waits, in favour of one of the same name. What that takes is made for each, since it is seldom.
local function replace(id, place, score)
