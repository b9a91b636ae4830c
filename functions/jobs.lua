-- jobs: the operations of a user on one job.
--   removeJob   channel number id -> { status, rest }     a running job loses its lease, and its worker is notified
--   retryJob    channel number id -> status     completed or failed -> waiting, with fresh attempts
--   revokeJob   channel number id [reason] -> { status, rest }     "revoked": it will never run; "revoking": its
--               worker is notified to cancel it
--   abandonJob  channel number id reply_channel reason -> { status of revokeJob or "awaited", rest }     the client
--               that added the job waits for it no longer: revoke it, unless other clients wait for it
--   promoteJob  channel number id -> status     delayed -> waiting now
-- status: "ok" (or as above), "missing", or "state <state>" when the operation does not fit the state of the job.
-- rest: '' or, if work of flows is left or the outbox has messages, the base key of the queue with the plan of the job.
--       Until these messages arrive, descendants of the job may start.

-- Notify the worker that runs this entry that its lease is gone.
local function notify_run(base, id, entry)
  local consumer = runs.consumer_of(base, id, entry)
  if consumer then wakeup.send(base, consumer, 'x ' .. entry) end
end

-- Finish the call, and return the status with `rest`.
local function finished(base, status, call)
  wakeup.finish(base, call)
  return {status, (call.seen.flow_work or call.seen.posted) and (call.reported_to or base) or ''}
end

request.register('removeJob', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state, entry = plain.open(base, id, call.seen)
  if not state then return {'missing', ''} end
  if state == 'active' then notify_run(base, id, entry) end
  removal.remove(base, id, state, call)
  return finished(base, 'ok', call)
end, {'allow-oom'})

request.register('retryJob', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state = plain.open(base, id, call.seen)
  if not state then return 'missing' end
  if not locations.is_final(state) then return 'state ' .. state end
  if finish.remove_over(base, id) then return 'missing' end
  removal.start_anew(base, id, 'retried', call)
  wakeup.finish(base, call)
  return 'ok'
end)

-- Revoke a job that has not ended. Return the reply.
local function revoke(base, id, state, entry, reason, call)
  if reason and reason ~= '' then redis.call('HSET', base .. ':job:' .. id, 'revoked', reason) end
  if state == 'active' then
    removal.revoke_run(base, id, entry, call)
    return finished(base, 'revoking', call)
  end
  finish.fail(base, id, locations.leave(base, id, call), 'revoked', call)
  return finished(base, 'revoked', call)
end

request.register('revokeJob', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state, entry = plain.open(base, id, call.seen)
  if not state then return {'missing', ''} end
  if locations.is_final(state) then return {'state ' .. state, ''} end
  return revoke(base, id, state, entry, args[4], call)
end, {'allow-oom'})

request.register('abandonJob', function(base, args)
  local id, channel, call = args[3], args[4], queue_flags.call(base)
  local state, entry = plain.open(base, id, call.seen)
  if state and locations.is_final(state) then
    if call.seen.held then finish.confirm(base, channel, {id}) end
    return {'state ' .. state, ''}
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  local rest = channels and finish.without(channels, channel) or {}
  if rest[1] then
    redis.call('HSET', base .. ':waiters', id, table.concat(rest, ' '))
    return {state and 'awaited' or 'missing', ''}
  end
  redis.call('HDEL', base .. ':waiters', id)
  if not state then return {'missing', ''} end
  return revoke(base, id, state, entry, args[5], call)
end, {'allow-oom'})

request.register('promoteJob', function(base, args)
  local id, call = args[3], queue_flags.call(base)
  local state = plain.open(base, id, call.seen)
  if not state then return 'missing' end
  if state ~= 'delayed' then return 'state ' .. state end
  locations.leave(base, id, call)
  redis.call('HSET', base .. ':job:' .. id, 'place', routes.enter_again(base, id, call))
  events.note(call.lines, 'waiting', id, 'promoted')
  wakeup.finish(base, call)
  return 'ok'
end)
