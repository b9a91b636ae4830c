-- waiting: ask to be told when a job ends.
--   awaitJob   id channel -> { "waiting" | state | "missing", flat record when it has ended }
--   forgetReply id channel -> "ok"
--   confirmReplies channel { id }* -> "ok"    the channel has received the answers of these jobs: their records are no
--                                             longer kept for it, and the retention of the queue is applied
-- Each of them does the same when sent twice, so they carry no request number. At most 1,000 ids.

register('awaitJob', function(base, args)
  local id, channel = args[1], args[2]
  local state = record.place(base, id)
  if not state then return {'missing'} end
  if state == 'completed' or state == 'failed' then
    if finish.is_over(base, id) then return {'missing'} end
    return {state, redis.call('HGETALL', base .. ':job:' .. id)}
  end
  local rest = finish.without(redis.call('HGET', base .. ':waiters', id) or '', channel)
  rest[#rest + 1] = channel
  redis.call('HSET', base .. ':waiters', id, table.concat(rest, ' '))
  return {'waiting'}
end, {'allow-oom'})

register('forgetReply', function(base, args)
  local id, channel = args[1], args[2]
  if redis.call('ZSCORE', base .. ':held', id) then
    finish.confirm(base, channel, {id})    -- it has ended
    return 'ok'
  end
  local rest = finish.without(redis.call('HGET', base .. ':waiters', id) or '', channel)
  if #rest == 0 then
    redis.call('HDEL', base .. ':waiters', id)
  else
    redis.call('HSET', base .. ':waiters', id, table.concat(rest, ' '))
  end
  return 'ok'
end, {'allow-oom'})

register('confirmReplies', function(base, args)
  if #args > 1001 then fail('ARGUMENT', 'at most 1000 ids are confirmed in a call, found ' .. #args - 1) end
  local call = glance.call(base)
  if call.seen.held and #args > 1 and finish.confirm(base, args[1], {unpack(args, 2)}) > 0 then
    finish.trim_kept(base, call.now, call.seen)
  end
  return 'ok'
end, {'allow-oom'})
