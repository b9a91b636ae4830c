-- jobs: what a user does to one job.
--   removeJob   lane number id -> word     a running job's run is fenced off and told to stop
--   retryJob    lane number id -> word     completed or failed -> waiting, with fresh attempts
--   revokeJob   lane number id -> word     "revoked": it will never run; "revoking": its worker is told to cancel it
--   promoteJob  lane number id -> word     delayed -> waiting now
-- word: "ok" (or as above), "missing", or "state <state>" when the job is in a state the operation does not fit.

local jobs = {}

local function finished(state)
  return state == 'completed' or state == 'failed'
end

local function woken(base, n)
  if not wakeup.paused(base) then wakeup.wake(base, n) end
end

local function stop_run(base, entry)
  local consumer = places.consumer_of(base, entry)
  if consumer then wakeup.tell(base, consumer, 'x ' .. entry) end
end

function jobs.remove(base, id, call)
  local state, entry = record.place(base, id)
  if not state then return 'missing' end
  if state == 'active' then stop_run(base, entry) end
  places.leave(base, id)
  record.forget_marks(base, {id}, call.seen)
  redis.call('ZREM', base .. ':held', id)
  finish.answer_waiters(base, 'removed', {id}, {''}, call.seen)
  record.unlink(base, {id})
  events.note(call.lines, 'removed', id, state)
  return 'ok'
end

-- A finished job starts again, with fresh attempts.
function jobs.start_again(base, id, how, lines)
  local key, entry = base .. ':job:' .. id, places.leave(base, id)
  record.keep_added(base, id, entry)
  redis.call('ZREM', base .. ':held', id)
  redis.call('HDEL', key, 'failures', 'stalls', 'ended', 'result', 'reason', 'cause', 'error', 'progress', 'drop')
  redis.call('HSET', key, 'place', scheduled.to_stream(base, id))
  events.note(lines, 'waiting', id, how)
end

request.register('removeJob', function(base, args)
  local call = {now = clock.now(), lines = {}, seen = glance.at(base)}
  local word = jobs.remove(base, args[3], call)
  events.write(base, call.lines, call.now)
  return word
end, {'allow-oom'})

request.register('retryJob', function(base, args)
  local id, now = args[3], clock.now()
  local state = record.place(base, id)
  if not state then return 'missing' end
  if not finished(state) then return 'state ' .. state end
  local lines = {}
  jobs.start_again(base, id, 'retried', lines)
  events.write(base, lines, now)
  woken(base, 1)
  return 'ok'
end)

request.register('revokeJob', function(base, args)
  local id, now = args[3], clock.now()
  local state, entry = record.place(base, id)
  if not state then return 'missing' end
  if finished(state) then return 'state ' .. state end
  if state == 'active' then
    redis.call('SADD', base .. ':revoking', id)
    local consumer = places.consumer_of(base, entry)
    if consumer then wakeup.tell(base, consumer, 'r ' .. id) end
    events.one(base, 'revoking', id, nil, now)
    return 'revoking'
  end
  local lines = {}
  finish.fail(base, id, places.leave(base, id), 'revoked', {now = now, lines = lines, seen = glance.at(base)})
  events.write(base, lines, now)
  return 'revoked'
end, {'allow-oom'})

request.register('promoteJob', function(base, args)
  local id, now = args[3], clock.now()
  local state = record.place(base, id)
  if not state then return 'missing' end
  if state ~= 'delayed' then return 'state ' .. state end
  places.leave(base, id)
  redis.call('HSET', base .. ':job:' .. id, 'place', scheduled.to_stream(base, id))
  events.one(base, 'waiting', id, 'promoted', now)
  woken(base, 1)
  return 'ok'
end)
