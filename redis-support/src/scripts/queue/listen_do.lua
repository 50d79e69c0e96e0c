tick()
redis.call('HDEL', O, '') -- works without memory, and lets the next ones work
listen(client)
return 1
