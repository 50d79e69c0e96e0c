redis.call('SET', Z, '1')
redis.call('ZADD', X, 0, queue)
return 1
