tick()
redis.call('DEL', Z)
watch_over()
return 1
