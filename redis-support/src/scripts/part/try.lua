-- Part: whether member may take the free lock; if so, it waits no more. Needs what the serve part does, and the
-- wish part. Sets free; else value and waiting anew, since the lock may have been handed over, and dies, when the waiter that
-- has the turn counts as dead.
-- @include part/serve.lua
local head
head, dies = serve(member)
-- With the budget used up, a live waiter may come behind the dead ones: then nothing is taken.
free = budget > 0 and (head or member) == member
if free and head then drop(member) end
if not free then value, waiting = redis.call('GET', K), redis.call('ZCARD', Q) end
