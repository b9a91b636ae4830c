-- removal: removes a job with everything that belongs to it, or clears the traces of its runs and starts it anew; and
-- revokes a job that runs.

local removal = {}

-- Remove everything that belongs to these jobs. The caller has taken them out of their locations.
function removal.strip(base, ids, call)
  record.forget_marks(base, ids, call)
  local waited = ids
  if call.seen.held then
    -- A held record belongs to a job that has ended, and its waiters have been notified.
    waited = {}
    for from = 1, #ids, CHUNK do
      local last = math.min(from + CHUNK - 1, #ids)
      for i, instant in ipairs(redis.call('ZMSCORE', base .. ':held', unpack(ids, from, last))) do
        if not instant then waited[#waited + 1] = ids[from + i - 1] end
      end
    end
    in_chunks('ZREM', base .. ':held', nil, ids)
  end
  local payloads = {}
  for i = 1, #waited do payloads[i] = '' end
  finish.answer_waiters(base, 'removed', waited, payloads, call.seen)
  if call.seen.waiters then in_chunks('HDEL', base .. ':waiters', nil, ids) end
  record.unlink(base, ids, call.seen)
  chunks.remove(base, ids, call.seen)
end

-- Remove the time to live and the waiting clients of plain jobs. The entries are already deleted.
function removal.strip_plain(base, ids, call)
  if not ids[1] then return end
  if call.seen.expiry then in_chunks('ZREM', base .. ':expiry', nil, ids) end
  if not call.seen.waiters then return end
  local payloads = {}
  for i = 1, #ids do payloads[i] = '' end
  finish.answer_waiters(base, 'removed', ids, payloads, call.seen)
  in_chunks('HDEL', base .. ':waiters', nil, ids)
end

-- Remove an existing job in any state. detail: for the event. The caller has already notified the worker of a running
-- job.
function removal.remove(base, id, detail, call)
  locations.leave(base, id, call)
  removal.strip(base, {id}, call)
  events.note(call.lines, 'removed', id, detail)
end

-- Revoke a job that runs: its worker is notified to stop the run. Its location does not change.
function removal.revoke_run(base, id, entry, call)
  redis.call('SADD', queue_flags.create(base, 'revoking', call.seen), id)
  local consumer = runs.consumer_of(base, id, entry)
  -- The message names the entry and not the job: otherwise a late message would stop the job's next run.
  if consumer then wakeup.send(base, consumer, 'r ' .. entry) end
  events.note(call.lines, 'revoking', id)
  if call.seen.flowed then record.revoke_children(base, id, call) end    -- see children.lua
end

-- Let a job that has ended wait again, as if it had never run. how: for the event.
function removal.start_anew(base, id, how, call)
  local key = base .. ':job:' .. id
  if record.location(base, id) == 'completed' then job_history.note_completed(base, id, call) end
  if call.seen.stepped then journals.reopen(base, id, record.location(base, id), call.seen) end
  local entry = locations.leave(base, id, call)
  record.keep_added(base, id, entry)
  -- A held record belongs to a job that has ended, and its waiters have been notified.
  if call.seen.held and redis.call('ZREM', base .. ':held', id) == 1 then redis.call('HDEL', base .. ':waiters', id) end
  redis.call('HDEL', key, 'failures', 'stalls', 'undelivered', 'revoked', 'ended',
    'result', 'reason', 'cause', 'error', 'progress', 'progress_at', 'drop', 'group', 'runner')
  redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
  chunks.reopen(base, id, call.seen)
  dedup.own_again(base, id, call)
  events.note(call.lines, 'waiting', id, how)
end
