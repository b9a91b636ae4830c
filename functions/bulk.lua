-- bulk: makes one change to many jobs. The steps of an operation are numbered by the position of their first job, and
-- each step is carried out once: a repeated step gets the stored reply, for a week.
--   changeJobs  operation position action argument cutoff states actor note n { id refused data opts target }*n
--       -> { looked, statuses, rest }
--     position from 1; if it is lower than in the last step, the call is refused with REPLAY
--     action    retry, cancel, promote, delay, move, delete, edit
--     argument  retry, edit: "1" also for completed jobs; cancel: the reason; delay: ms; move: the target's base key
--     cutoff    jobs added after it (ms) stay unchanged; '' = none
--     states    the only states in which a job is changed, joined by commas; '' = all
--     actor     who makes the change, for the histories of the changed jobs; '' = they get no entry
--     note      why, for the histories
--     refused   '' or the reason for which the client refuses the job
--     data      edit, move: the new payload, '' = the stored one; edit: new opts, '' = the stored ones
--     target    move: the id in the target, '' = a generated one
--     looked    the step handled the first `looked` jobs; the client sends the others in its next step
--     statuses  "ok", or why the job was not changed: removed, later, "state <state>", flow
--     rest      the base key of a queue whose outbox must be relayed, or ''
-- O(n), in the limits of budget.lua.

do
  local BEFORE, FIELDS, MOST, MOST_POSTED = 9, 5, 500, 262144
  local change = {}

  local function restart(base, id, state, argument, call)
    if state ~= 'failed' and not (argument == '1' and state == 'completed') then return 'state ' .. state end
    if finish.remove_over(base, id) then return 'removed' end
    removal.start_anew(base, id, 'retried', call)
    return 'ok'
  end

  function change.retry(base, job, argument, call)
    return restart(base, job.id, job.state, argument, call)
  end

  local function note(base, step, job, call)
    if not step.entry then return end
    step.budget.bytes = step.budget.bytes + job_history.note_action(base, job.id, step.entry, call)
  end

  function change.cancel(base, job, reason, call, step)
    if locations.is_final(job.state) then return 'state ' .. job.state end
    note(base, step, job, call)   -- before the end that the server notes, and before the record may be removed
    if reason ~= '' then redis.call('HSET', base .. ':job:' .. job.id, 'revoked', reason) end
    if job.state == 'active' then
      removal.revoke_run(base, job.id, job.entry, call)
    else
      finish.fail(base, job.id, locations.leave(base, job.id, call), 'revoked', call)
    end
    return 'ok'
  end

  local function promote(base, id, call)
    locations.leave(base, id, call)
    redis.call('HSET', base .. ':job:' .. id, 'place', routes.enter_again(base, id, call))
    events.note(call.lines, 'waiting', id, 'promoted')
    return 'ok'
  end

  function change.promote(base, job, _, call)
    if job.state ~= 'delayed' then return 'state ' .. job.state end
    return promote(base, job.id, call)
  end

  function change.delay(base, job, delay, call)
    if not locations.is_unstarted(job.state) or job.state == 'waiting-children' then return 'state ' .. job.state end
    local key = base .. ':job:' .. job.id
    if delay == 0 then return job.state == 'delayed' and promote(base, job.id, call) or 'ok' end
    if job.state == 'delayed' then
      scheduled.take_out(base, job.id)
    else
      record.keep_added(base, job.id, locations.leave(base, job.id, call))
      routes.forget_turn(base, job.id)
    end
    redis.call('HSET', key, 'place', scheduled.push(base, job.id, call.now + delay, call))
    events.note(call.lines, 'changed', job.id, 'delay ' .. digits(delay))
    return 'ok'
  end

  function change.delete(base, job, _, call)
    if job.state == 'active' then
      local consumer = runs.consumer_of(base, job.id, job.entry)
      if consumer then wakeup.send(base, consumer, 'x ' .. job.entry) end
    end
    removal.remove(base, job.id, job.state, call)
    return 'ok'
  end

  -- Return the options with which the job waits in another queue, in the form of an add.
  local function extra_of(base, job, call)
    local extra = routes.extra_of(job.fields[5] or '') or {}
    if job.state == 'delayed' then
      extra.at = tonumber(redis.call('ZSCORE', base .. ':scheduled', job.entry .. job.id))
    end
    local till = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', job.id)
    if till then extra.ttl = math.max(1, tonumber(till) - call.now) end
    return next(extra) and cmsgpack.pack(extra) or ''
  end

  function change.move(base, job, target, call)
    local waits = locations.is_unstarted(job.state) and job.state ~= 'waiting-children'
    if not waits and job.state ~= 'failed' then return 'state ' .. job.state end
    if call.seen.flowed and redis.call('HEXISTS', base .. ':flowed', job.id) == 1 then return 'flow' end
    local fields = job.fields
    outbox.push(base, {target, job.target, fields[1] or '?', job.data ~= '' and job.data or fields[2] or '',
      fields[3] or '', extra_of(base, job, call), ''}, call)
    removal.remove(base, job.id, job.state, call)
    return 'ok'
  end

  function change.edit(base, job, argument, call)
    if job.state == 'active' or job.state == 'suspended' then return 'state ' .. job.state end
    local key = base .. ':job:' .. job.id
    if locations.is_final(job.state) then
      local status = restart(base, job.id, job.state, argument, call)
      if status ~= 'ok' then return status end
    end
    redis.call('HSET', key, 'data', job.data)
    if job.opts ~= '' and locations.is_final(job.state) then redis.call('HSET', key, 'opts', job.opts) end
    events.note(call.lines, 'updated', job.id)
    return 'ok'
  end

  local function added_of(job)
    return tonumber(job.fields[4] or keyed.added_of(job.fields[5] or '') or string.match(job.entry, '^p%d+%-(%d+)$'))
  end

  local function change_one(base, step, job, call)
    -- A job that stays unchanged needs no record.
    local state = plain.location(base, job.id)
    if not state then return 'removed' end
    if step.states and not step.states[state] then return 'state ' .. state end
    job.state, job.entry = plain.open_next(base, job.id, call.seen)
    job.fields = redis.call('HMGET', base .. ':job:' .. job.id, 'name', 'data', 'opts', 'added', 'route')
    local bytes = #(job.fields[2] or '')
    step.budget.bytes = step.budget.bytes + bytes
    if step.cutoff and (added_of(job) or 0) > step.cutoff then return 'later' end
    local status = change[step.action](base, job, step.argument, call, step)
    if status == 'ok' and step.action ~= 'cancel' then note(base, step, job, call) end
    return status
  end

  local function parse(args)
    local n = integer('count', args[BEFORE])
    if n < 1 or n > MOST or #args ~= BEFORE + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[BEFORE] .. ' jobs')
    end
    if not change[args[3]] then fail('ARGUMENT', 'unknown change ' .. args[3]) end
    local argument = args[3] == 'delay' and integer('delay', args[4]) or args[4]
    local step = {action = args[3], argument = argument, n = n, budget = budget.new(),
      cutoff = args[5] ~= '' and integer('cutoff', args[5]) or nil}
    if args[6] ~= '' then
      step.states = {}
      for state in string.gmatch(args[6], '[^,]+') do step.states[state] = true end
    end
    return step
  end

  local function run(base, args)
    local step, call, statuses = parse(args), queue_flags.call(base), {}
    if args[7] ~= '' then step.entry = job_history.action(args[7], args[3], args[8], call) end
    for i = 1, step.n do
      if i > 1 and (budget.is_spent(step.budget) or keyed.has_touched_many(call)
        or (call.seen.posted or 0) > MOST_POSTED) then break end
      if step.action == 'move' and outbox.full(base, call.seen) then break end
      local at = BEFORE + (i - 1) * FIELDS
      local job = {id = args[at + 1], data = args[at + 3], opts = args[at + 4], target = args[at + 5]}
      statuses[i] = args[at + 2] ~= '' and args[at + 2] or change_one(base, step, job, call)
    end
    wakeup.finish(base, call)
    local rest = (call.seen.flow_work or call.seen.posted) and (call.reported_to or base) or ''
    return {#statuses, statuses, rest}
  end

  register('changeJobs', function(base, args)
    local channel, number = 'op.' .. args[1], args[2]
    local position = integer('position', number)
    if position < 1 then fail('ARGUMENT', 'positions begin with 1, found ' .. number) end
    local kept = request.replay(base, channel, number, position)
    if kept ~= nil then return kept end
    return request.remember(base, channel, number, run(base, args), request.WEEK_MS)
  end)
end
