-- outcomes: checks and applies the outcomes of runs, by their codes. settle.lua lists the codes.

local outcomes = {}

-- Check the option of an outcome, before anything is written.
local check = {}

function check.c(option) finish.check_policy(option) end

function check.f(option) finish.check_policy(string.match(option, '^([^;]*);[a-z_]+;') or '?') end

function check.r(option) integer('delay', string.match(option, '^(%d+) ')) end

function check.d(option) integer('delay', string.match(option, '^@?(%d+)')) end

function check.l(option) integer('delay', option) end

function check.s(option, payload) signals.check(option, payload) end

function check.b() end

function check.w() end

-- Note a failed attempt in its group. Return the group, the runner and the history for the record of the job; nil if
-- the record is missing.
local function failed_attempt(base, id, outcome, payload, reason, call)
  local key = base .. ':job:' .. id
  local job = redis.call('HMGET', key, 'place', 'name', 'history', 'claim')
  if not job[1] then return nil end
  local group, version = failure_groups.attempt(base, id, job[2] or '?', payload, reason, call)
  local runner = call.consumer .. ' ' .. version
  return group, runner, job_history.after_run(base, job[3], job[4], outcome, runner, group, reason, call) or ''
end

-- Each outcome returns nil, or why the run was refused. `now` is a text: formatting a number for every write would cost
-- more than the write itself. The run's entry is already deleted and its key released.
local apply = {}

function apply.c(base, now, call, done, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local written = redis.call('HSET', key, 'place', 'completed ' .. entry, 'ended', now, 'result', payload)
  -- Checking the write saves a read for each job. If it has created every field, the record was deleted by hand, and
  -- the write has created another one.
  if written == 3 then
    redis.call('UNLINK', key)
    return 'missing'
  end
  chunks.close(base, id, 'completed', '', call)
  if call.seen.stepped then journals.keep_history(base, id) end
  finish.note(done, 'completed', option, id, payload)
  if call.seen.event_rules then event_content.note(base, 'completed', id, payload, call) end
  local line = events.line(call.lines, 'completed')
  line[#line + 1] = id
end

function apply.f(base, now, call, done, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local policy, cause, reason = string.match(option, '^([^;]*);([a-z_]+);(.*)$')
  if cause == 'revoked' then
    if not exists(key) then return 'missing' end
    finish.note_revoked(done)
    job_history.note_run(base, id, 'revoked', reason, call)
    redis.call('HSET', key, 'place', 'failed ' .. entry, 'ended', now, 'error', payload, 'reason', reason, 'cause',
      cause)
  else
    local group, runner, history = failed_attempt(base, id, 'failed', payload, reason, call)
    if not group then return 'missing' end
    redis.call('HSET', key, 'place', 'failed ' .. entry, 'ended', now, 'error', payload, 'reason', reason, 'cause',
      cause, 'group', group, 'runner', runner, 'history', history)
  end
  redis.call('HINCRBY', key, 'failures', 1)
  chunks.close(base, id, 'failed', payload, call)
  finish.note(done, 'failed', policy, id, payload)
  events.note(call.lines, 'failed', id, reason)
  event_content.note(base, 'failed', id, nil, call)
  dead_letters.move(base, id, cause, reason, call)
end

-- Return the location of a job that runs again later. A keyed job keeps its position in its key's line.
local function put_off(base, id, entry, delay, call)
  local location = scheduled.push(base, id, call.now + delay, call)
  local route = string.sub(entry, 1, 1) == 'k' and keyed.route_of(base, id)
  if route then keyed.rest(base, id, route.key, call) end
  return location
end

function apply.r(base, _, call, _, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local delay, reason = string.match(option, '^(%d+) (.*)$')
  local group, runner, history = failed_attempt(base, id, 'retrying', payload, reason, call)
  if not group then return 'missing' end
  record.keep_added(base, id, entry)
  redis.call('HINCRBY', key, 'failures', 1)
  local location = delay == '0' and routes.enter_again(base, id, call) or put_off(base, id, entry, delay, call)
  redis.call('HSET', key, 'place', location, 'error', payload, 'reason', reason, 'group', group, 'runner', runner,
    'history', history)
  events.note(call.lines, 'retrying', id, option)
  event_content.note(base, 'retrying', id, nil, call)
end

function apply.d(base, _, call, _, id, entry, reason, option)
  local key = base .. ':job:' .. id
  if not exists(key) then return 'missing' end
  record.keep_added(base, id, entry)
  local kind, when, step = string.match(option, '^(@?)(%d+) ?(.*)$')
  local delay = kind == '@' and math.max(0, when - call.now) or when
  redis.call('HSET', key, 'place', put_off(base, id, entry, delay, call))
  if reason ~= '' then redis.call('HSET', key, 'reason', reason) end
  if step ~= '' then signals.set_step(base, id, step, call) end
  job_history.note_run(base, id, 'delayed', reason, call)
  events.note(call.lines, 'delayed', id)
end

function apply.s(base, _, call, _, id, entry, waits, option)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  record.keep_added(base, id, entry)
  job_history.note_run(base, id, 'suspended', '', call)
  signals.suspend(base, id, waits, option, call)
end

function apply.w(base, _, call, _, id, entry)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  record.keep_added(base, id, entry)
  job_history.note_run(base, id, 'waiting-children', '', call)
  children.wait(base, id, call)
end

function apply.b(base, _, call, _, id, entry)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  returned.push(base, id, entry, call)
  events.note(call.lines, 'returned', id)
end

function apply.l(base, _, call, _, id, entry, _, option)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  local route = string.sub(entry, 1, 1) == 'k' and keyed.route_of(base, id)
  local at = call.now + option
  if route then keyed.pause(base, route.key, at, call) else limits.close_gate(base, at, call) end
  returned.push(base, id, entry, call)
  events.note(call.lines, 'limited', id, option)
end

outcomes.check, outcomes.apply = check, apply
