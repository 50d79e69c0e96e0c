
remove(id, redis.call('HGET', M, id) or '', place, score)
end
