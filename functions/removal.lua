-- removal: a job goes, with all that belongs to it; or what its runs left goes, and it starts anew.

local removal = {}

-- Remove all that belongs to jobs which have left their places.
function removal.strip(base, ids, call)
  local payloads = {}
  for i = 1, #ids do payloads[i] = '' end
  record.forget_marks(base, ids, call)
  if call.seen.held then
    in_chunks('ZREM', base .. ':held', nil, ids)
    in_chunks('ZREM', base .. ':replies', nil, ids)
  end
  finish.answer_waiters(base, 'removed', ids, payloads, call.seen)
  record.unlink(base, ids)
end

-- Remove an existing job in any state. detail: for the event. A run must have been told to stop before.
function removal.remove(base, id, detail, call)
  places.leave(base, id, call)
  removal.strip(base, {id}, call)
  events.note(call.lines, 'removed', id, detail)
end

-- Let a job that has ended wait again, as if it had never run. how: for the event.
function removal.start_anew(base, id, how, call)
  local key, entry = base .. ':job:' .. id, places.leave(base, id, call)
  record.keep_added(base, id, entry)
  if call.seen.held then
    redis.call('ZREM', base .. ':held', id)
    finish.forget_receipts(base, id)
  end
  redis.call('HDEL', key, 'failures', 'stalls', 'undelivered', 'revoked', 'ended',
    'result', 'reason', 'cause', 'error', 'progress', 'drop')
  redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
  dedup.own_again(base, id, call)
  events.note(call.lines, 'waiting', id, how)
end
