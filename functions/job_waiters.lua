-- job_waiters: notifies clients when a job ends.
--   awaitJob   id reply_channel -> { "waiting" | state | "missing", flat record when the job has ended }
--   forgetReply id reply_channel -> "ok"
--   confirmReplies reply_channel { id }* -> "ok"    the client has received the ends of these jobs: their records are
--                                                   no longer held for it, and the retention of the queue applies again
-- A repeated call has no second effect, so these calls carry no request number. At most 1,000 ids.

local TRIM_STEP = 200

-- Return the first and the last position of a channel in a list, nil if it is not in the list. The list may have
-- thousands of channels, so one search over the text is faster than splitting it.
local function find(channels, channel)
  return string.find(' ' .. channels .. ' ', ' ' .. channel .. ' ', 1, true)
end

register('awaitJob', function(base, args)
  local id, channel = args[1], args[2]
  local state = plain.location(base, id)
  if not state then return {'missing'} end
  if state == 'completed' or state == 'failed' then
    if finish.is_over(base, id) then return {'missing'} end
    local flat = redis.call('HGETALL', base .. ':job:' .. id)
    return {state, flat[1] and flat or plain.view(base, id)}
  end
  queue_flags.require(base)
  plain.open(base, id)
  local channels = redis.call('HGET', base .. ':waiters', id)
  if not (channels and find(channels, channel)) then
    local key = queue_flags.create(base, 'waiters')
    redis.call('HSET', key, id, channels and channels .. ' ' .. channel or channel)
  end
  return {'waiting'}
end, {'allow-oom'})

register('forgetReply', function(base, args)
  local id, channel = args[1], args[2]
  if redis.call('ZSCORE', base .. ':held', id) then
    finish.confirm(base, channel, {id})    -- the job has ended
    return 'ok'
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  local from, last = find(channels or '', channel)
  if not from then return 'ok' end
  if channels == channel then
    redis.call('HDEL', base .. ':waiters', id)
  else
    -- Remove the blank before the channel as well, or the one after it if the channel is the first.
    local rest = string.sub(channels, 1, math.max(0, from - 2)) .. string.sub(channels, from == 1 and last or last - 1)
    redis.call('HSET', base .. ':waiters', id, rest)
  end
  return 'ok'
end, {'allow-oom'})

register('confirmReplies', function(base, args)
  if #args > 1001 then fail('ARGUMENT', 'at most 1000 ids are confirmed in a call, found ' .. #args - 1) end
  if #args > 1 and finish.confirm(base, args[1], {unpack(args, 2)}) > 0 then
    -- A client that waits for one job after another confirms each by itself, so this reads only the flags it needs.
    local keep = redis.call('HMGET', base .. ':meta2', 'keep_completed', 'keep_failed')
    local seen = {held = exists(base .. ':held'), keep = {completed = keep[1] or '', failed = keep[2] or ''}}
    finish.trim_all(base, clock.now(), seen, #args + TRIM_STEP)
  end
  return 'ok'
end, {'allow-oom'})
