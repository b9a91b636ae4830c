-- replaying: lists dead letters, and runs them again with fresh attempts.
--   listDeadLetters  which cursor count cause -> { next cursor | '', ids }        newest first
--     which: "failed", jobs that failed in this queue, without the revoked; "moved", jobs that came from other queues
--   replayFailed     channel number skip left count cause -> { skip, left, replayed }
--     One step over the jobs that failed here, oldest first: up to `count` of those with this cause ('' = any) start
--     again under their ids.
--   readMoved        skip left count cause -> { skip, left, flat { id origin name data opts } }
--     One step over the jobs from other queues that do not run here, oldest first, at most 1 MiB.
--   reviveJobs       channel number n { token id failed_ms name data opts route }*n -> statuses    in the queue of
--                    origin
--     "ok": the failed job has started again, or was added anew because it had no record; "seen": an earlier call has
--     done this; "superseded": the job has not failed, or has failed at another time, so it is unchanged
--   dropMoved        channel number id… -> number of dead letters deleted
-- `skip` counts the jobs that a step left in place: replayed jobs leave the set, so the next step begins after the
-- others. `left` is the number of jobs still to look at, '' in the first step. Jobs that fail again during the replay
-- are not among them.

do
  local STEP = 200
  local MOST_REVIVED = 100
  local STEP_BYTES = 1048576

  local function origin_of(base, id)
    local packed = redis.call('HGET', base .. ':job:' .. id, 'letter')
    local readable, origin = pcall(cmsgpack.unpack, packed or '')
    return readable and type(origin) == 'table' and origin or {}, packed
  end

  local fits = {}

  function fits.failed(base, id, cause)
    local found = redis.call('HGET', base .. ':job:' .. id, 'cause')
    return found ~= 'revoked' and (cause == '' or found == cause) and not finish.is_over(base, id)
  end

  function fits.moved(base, id, cause)
    return cause == '' or origin_of(base, id)[3] == cause
  end

  register('listDeadLetters', function(base, args)
    local which, cursor, count = args[1], args[2], integer('count', args[3])
    if not fits[which] then fail('ARGUMENT', 'there are failed and moved dead letters, found ' .. which) end
    if count < 1 or count > 1000 then fail('ARGUMENT', 'count must be 1 to 1000, found ' .. args[3]) end
    local from, ids = cursor == '' and 0 or integer('cursor', cursor), {}
    local found = redis.call('ZREVRANGE', base .. ':' .. which, from, from + count - 1)
    for _, id in ipairs(found) do
      if fits[which](base, id, args[4]) then ids[#ids + 1] = id end
    end
    return {#found == count and digits(from + count) or '', ids}
  end, {'no-writes'})

  -- Take one step through a set, oldest first. Call each(id) for jobs with this cause until it returns "stop" or the
  -- budget is spent; "skip" leaves the job in place. Return the new skip, and the number of jobs left to look at.
  local function walk(base, which, skip, left, cause, each)
    local key, call_budget = base .. ':' .. which, budget.new()
    left = left == '' and redis.call('ZCARD', key) or integer('left', left)
    if left <= 0 then return skip, 0 end
    local ids = redis.call('ZRANGE', key, skip, skip + math.min(STEP, left) - 1)
    if #ids == 0 then return skip, 0 end
    for i, id in ipairs(ids) do
      if i > 1 and budget.is_spent(call_budget) then return skip, left end
      local verdict = fits[which](base, id, cause) and each(id) or 'skip'
      if verdict == 'stop' then return skip, left end
      if verdict == 'skip' then skip = skip + 1 end
      left = left - 1
    end
    return skip, left
  end

  request.register('replayFailed', function(base, args)
    local skip, count, call, replayed = integer('skip', args[3]), integer('count', args[5]), queue_flags.call(base), 0
    local left
    skip, left = walk(base, 'failed', skip, args[4], args[6], function(id)
      if replayed == count or keyed.has_touched_many(call) then return 'stop' end
      if record.location(base, id) ~= 'failed' then return 'skip' end
      removal.start_anew(base, id, 'replayed', call)
      replayed = replayed + 1
      return 'gone'
    end)
    wakeup.finish(base, call)
    return {skip, left, replayed}
  end)

  register('readMoved', function(base, args)
    local skip, count, bytes, rows = integer('skip', args[1]), integer('count', args[3]), 0, {}
    local left
    skip, left = walk(base, 'moved', skip, args[2], args[4], function(id)
      if #rows >= 5 * math.min(count, MOST_REVIVED) or bytes > STEP_BYTES then return 'stop' end
      local state = record.location(base, id)
      local _, packed = origin_of(base, id)
      if not state or state == 'active' or not packed then return 'skip' end
      local job = redis.call('HMGET', base .. ':job:' .. id, 'name', 'data', 'opts')
      for _, value in ipairs({id, packed, job[1] or '?', job[2] or '', job[3] or ''}) do
        rows[#rows + 1] = value
        bytes = bytes + #value
      end
      return 'gone'
    end)
    return {skip, left, rows}
  end, {'no-writes'})

  local FIELDS = 7

  local function parse(args)
    local n = integer('count', args[3])
    if n < 1 or n > MOST_REVIVED or #args ~= 3 + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[3] .. ' jobs')
    end
    local tokens, list = {}, {}
    for i = 1, n do
      local at = 3 + (i - 1) * FIELDS
      tokens[i] = args[at + 1]
      list[i] = {id = args[at + 2], failed_at = args[at + 3], name = args[at + 4], data = args[at + 5],
        opts = args[at + 6], extra = routes.extra_of(args[at + 7])}
    end
    return tokens, list
  end

  -- Refuse jobs that must be added anew but do not fit the mode of the queue, which may have changed.
  local function check_modes(base, list)
    local mode = redis.call('HGET', base .. ':meta2', 'mode')
    for _, job in ipairs(mode and list or {}) do
      if not record.location(base, job.id) or finish.is_over(base, job.id) then add.check_mode(mode, 1, {job.extra}) end
    end
  end

  local function revive(base, job, call)
    local state = record.location(base, job.id)
    if not state or (state == 'failed' and finish.remove_over(base, job.id)) then
      add.one(base, job, call)
      return 'ok'
    end
    if state ~= 'failed' or redis.call('HGET', base .. ':job:' .. job.id, 'ended') ~= job.failed_at then
      return 'superseded'
    end
    removal.start_anew(base, job.id, 'replayed', call)
    return 'ok'
  end

  request.register('reviveJobs', function(base, args)
    local tokens, list = parse(args)
    check_modes(base, list)
    local known, call, statuses = inbox.known(base, tokens), queue_flags.call(base), {}
    for i, job in ipairs(list) do statuses[i] = known[i] and 'seen' or revive(base, job, call) end
    inbox.remember(base, tokens, call.now)
    wakeup.finish(base, call)
    return statuses
  end)

  request.register('dropMoved', function(base, args)
    local ids = {}
    for i = 3, #args do ids[#ids + 1] = args[i] end
    local call = queue_flags.call(base)
    local dropped = inbox.drop_dead_letters(base, ids, call)
    wakeup.finish(base, call)
    return dropped
  end, {'allow-oom'})
end
