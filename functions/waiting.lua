-- waiting: ask to be told when a job ends.
--   awaitJob   id channel -> { "waiting" | state | "missing", flat record when it has ended }
--   forgetReply id channel -> "ok"
-- Both do the same when sent twice, so they carry no request number.

local function without(channels, channel)
  local rest = {}
  for word in string.gmatch(channels, '%S+') do
    if word ~= channel then rest[#rest + 1] = word end
  end
  return rest
end

register('awaitJob', function(base, args)
  local id, channel = args[1], args[2]
  local state = record.place(base, id)
  if not state then return {'missing'} end
  if state == 'completed' or state == 'failed' then
    if finish.is_over(base, id) then return {'missing'} end
    return {state, redis.call('HGETALL', base .. ':job:' .. id)}
  end
  local rest = without(redis.call('HGET', base .. ':waiters', id) or '', channel)
  rest[#rest + 1] = channel
  redis.call('HSET', base .. ':waiters', id, table.concat(rest, ' '))
  return {'waiting'}
end, {'allow-oom'})

register('forgetReply', function(base, args)
  local id, channel = args[1], args[2]
  local rest = without(redis.call('HGET', base .. ':waiters', id) or '', channel)
  if #rest == 0 then
    redis.call('HDEL', base .. ':waiters', id)
  else
    redis.call('HSET', base .. ':waiters', id, table.concat(rest, ' '))
  end
  return 'ok'
end, {'allow-oom'})
