-- job_waiters: ask to be told when a job ends.
--   awaitJob   id channel -> { "waiting" | state | "missing", flat record when it has ended }
--   forgetReply id channel -> "ok"
--   confirmReplies channel { id }* -> "ok"    the channel has received the answers of these jobs: their records are no
--                                             longer kept for it, and the retention of the queue is applied
-- Each of them does the same when sent twice, so they carry no request number. At most 1,000 ids.

local TRIM_STEP = 200

-- Where a channel stands in a list of them: the first and the last place, nil if it does not. The list may have
-- thousands: it is searched as a whole, and not word by word.
local function find(channels, channel)
  return string.find(' ' .. channels .. ' ', ' ' .. channel .. ' ', 1, true)
end

register('awaitJob', function(base, args)
  local id, channel = args[1], args[2]
  local state = record.place(base, id)
  if not state then return {'missing'} end
  if state == 'completed' or state == 'failed' then
    if finish.is_over(base, id) then return {'missing'} end
    return {state, redis.call('HGETALL', base .. ':job:' .. id)}
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  if not (channels and find(channels, channel)) then
    redis.call('HSET', base .. ':waiters', id, channels and channels .. ' ' .. channel or channel)
  end
  return {'waiting'}
end, {'allow-oom'})

register('forgetReply', function(base, args)
  local id, channel = args[1], args[2]
  if redis.call('ZSCORE', base .. ':held', id) then
    finish.confirm(base, channel, {id})    -- it has ended
    return 'ok'
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  local from, upto = find(channels or '', channel)
  if not from then return 'ok' end
  if channels == channel then
    redis.call('HDEL', base .. ':waiters', id)
  else
    -- The blank before it goes too, or the one behind the first of all.
    local rest = string.sub(channels, 1, math.max(0, from - 2)) .. string.sub(channels, from == 1 and upto or upto - 1)
    redis.call('HSET', base .. ':waiters', id, rest)
  end
  return 'ok'
end, {'allow-oom'})

register('confirmReplies', function(base, args)
  if #args > 1001 then fail('ARGUMENT', 'at most 1000 ids are confirmed in a call, found ' .. #args - 1) end
  local call = queue_flags.call(base)
  if call.seen.held and #args > 1 and finish.confirm(base, args[1], {unpack(args, 2)}) > 0 then
    finish.trim_all(base, call.now, call.seen, #args + TRIM_STEP)
  end
  return 'ok'
end, {'allow-oom'})
