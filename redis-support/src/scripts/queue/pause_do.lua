tick()
if not string.find(marks, 'p', 1, true) then marks = marks .. 'p' end
save()
redis.call('ZADD', X, 0, queue)
return 1
