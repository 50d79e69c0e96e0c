tick()
redis.call('DEL', Z)
wake()
return 1
