-- removal: a job goes, with all that belongs to it; or what its runs left goes, and it starts anew.

local removal = {}

-- Remove all that belongs to jobs which have left their places.
function removal.strip(base, ids, call)
  record.forget_marks(base, ids, call)
  local waited = ids
  if call.seen.held then
    -- What is held has ended, and its waiters were told so.
    waited = {}
    for from = 1, #ids, CHUNK do
      local upto = math.min(from + CHUNK - 1, #ids)
      for i, instant in ipairs(redis.call('ZMSCORE', base .. ':held', unpack(ids, from, upto))) do
        if not instant then waited[#waited + 1] = ids[from + i - 1] end
      end
    end
    in_chunks('ZREM', base .. ':held', nil, ids)
  end
  local payloads = {}
  for i = 1, #waited do payloads[i] = '' end
  finish.answer_waiters(base, 'removed', waited, payloads, call.seen)
  if call.seen.waiters then in_chunks('HDEL', base .. ':waiters', nil, ids) end
  record.unlink(base, ids)
end

-- Remove an existing job in any state. detail: for the event. A run must have been told to stop before.
function removal.remove(base, id, detail, call)
  locations.leave(base, id, call)
  removal.strip(base, {id}, call)
  events.note(call.lines, 'removed', id, detail)
end

-- Let a job that has ended wait again, as if it had never run. how: for the event.
function removal.start_anew(base, id, how, call)
  local key, entry = base .. ':job:' .. id, locations.leave(base, id, call)
  record.keep_added(base, id, entry)
  -- What is held has ended, and its waiters were told so.
  if call.seen.held and redis.call('ZREM', base .. ':held', id) == 1 then redis.call('HDEL', base .. ':waiters', id) end
  redis.call('HDEL', key, 'failures', 'stalls', 'undelivered', 'revoked', 'ended',
    'result', 'reason', 'cause', 'error', 'progress', 'drop')
  redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
  dedup.own_again(base, id, call)
  events.note(call.lines, 'waiting', id, how)
end
