-- marks: what an add stores outside of the record or the entry of its job.
--   expiry   zset  id -> instant at which the time to live of a waiting job ends, ms
--   waiters  see finish.lua
-- record.forget_marks removes them.

local marks = {}

-- Note the end of the time to live of a job that is being added.
function marks.note_expiry(base, id, ttl, call)
  redis.call('ZADD', queue_flags.create(base, 'expiry', call.seen), digits(call.now + ttl), id)
end

-- Note the reply channel of a job that is being added. call.many: the call adds many jobs, see WIDENER.
function marks.note_waiter(base, id, channel, call)
  local is_new = not call.seen.waiters
  local key = queue_flags.create(base, 'waiters', call.seen)
  if not call.widened and (call.many or is_new) then
    redis.call('HSET', key, SEP, WIDENER, id, channel)
    redis.call('HDEL', key, SEP)
    call.widened = true
  else
    redis.call('HSET', key, id, channel)
  end
end
