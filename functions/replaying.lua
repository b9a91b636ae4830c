-- replaying: looking at dead letters, and running them again with fresh attempts.
--   listDeadLetters  which cursor count cause -> { next cursor | '', ids }        newest first
--     which: "failed", what failed in this queue, without the revoked; "moved", what came from other queues
--   replayFailed     lane number skip left count cause -> { skip, left, replayed }
--     One step over what failed here, oldest first: up to `count` of those with this cause ('' = any) start again under
--     their ids.
--   readMoved        skip left count cause -> { skip, left, flat { id letter name data opts } }
--     One step over what came from elsewhere and nobody works on, oldest first, at most 1 MiB.
--   reviveJobs       lane number n { token id failed_ms name data opts }*n -> words        in the queue of their origin
--     "ok": the failed record started again, or there was none and the job was added anew; "seen": that has been done
--     before; "superseded": the job exists and did not fail then, so it is not touched
--   dropMoved        lane number id… -> number of dead letters deleted
-- `skip` counts what a step left standing: what is replayed leaves its place, so the next step begins behind the rest.
-- `left` is how many are still to be looked at, '' at the first step: what fails again meanwhile is not one of them.

do
  local STEP = 200
  local MOST_REVIVED = 200
  local STEP_BYTES = 1048576

  local function letter_of(base, id)
    local packed = redis.call('HGET', base .. ':job:' .. id, 'letter')
    local readable, letter = pcall(cmsgpack.unpack, packed or '')
    return readable and type(letter) == 'table' and letter or {}, packed
  end

  local fits = {}

  function fits.failed(base, id, cause)
    local found = redis.call('HGET', base .. ':job:' .. id, 'cause')
    return found ~= 'revoked' and (cause == '' or found == cause)
  end

  function fits.moved(base, id, cause)
    return cause == '' or letter_of(base, id)[3] == cause
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

  -- One step of a set, oldest first: calls each(id) for what fits, until it answers "stop"; "skip" leaves it standing.
  -- Answers the new skip, and how many are left to look at.
  local function walk(base, which, skip, left, cause, each)
    local key = base .. ':' .. which
    left = left == '' and redis.call('ZCARD', key) or integer('left', left)
    if left <= 0 then return skip, 0 end
    local ids = redis.call('ZRANGE', key, skip, skip + math.min(STEP, left) - 1)
    if #ids == 0 then return skip, 0 end
    for _, id in ipairs(ids) do
      local word = fits[which](base, id, cause) and each(id) or 'skip'
      if word == 'stop' then return skip, left end
      if word == 'skip' then skip = skip + 1 end
      left = left - 1
    end
    return skip, left
  end

  local function woken(base, n)
    if n > 0 and not wakeup.paused(base) then wakeup.wake(base, n) end
  end

  request.register('replayFailed', function(base, args)
    local skip, count, lines, replayed = integer('skip', args[3]), integer('count', args[5]), {}, 0
    local left
    skip, left = walk(base, 'failed', skip, args[4], args[6], function(id)
      if replayed == count then return 'stop' end
      if record.place(base, id) ~= 'failed' then return 'skip' end
      jobs.start_again(base, id, 'replayed', lines)
      replayed = replayed + 1
      return 'gone'
    end)
    events.write(base, lines, clock.now())
    woken(base, replayed)
    return {skip, left, replayed}
  end, {'allow-oom'})

  register('readMoved', function(base, args)
    local skip, count, bytes, rows = integer('skip', args[1]), integer('count', args[3]), 0, {}
    local left
    skip, left = walk(base, 'moved', skip, args[2], args[4], function(id)
      if #rows >= 5 * math.min(count, MOST_REVIVED) or bytes > STEP_BYTES then return 'stop' end
      local state = record.place(base, id)
      local _, packed = letter_of(base, id)
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

  local FIELDS = 6

  local function revive(base, args)
    local n = integer('count', args[3])
    if n < 1 or n > MOST_REVIVED or #args ~= 3 + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[3] .. ' jobs')
    end
    local tokens, words, lines, list, anew, revived = {}, {}, {}, {args[1], args[2], 0}, {}, 0
    for i = 1, n do tokens[i] = args[4 + (i - 1) * FIELDS] end
    local now, known = clock.now(), inbox.known(base, tokens)
    for i = 1, n do
      local at = 3 + (i - 1) * FIELDS
      local id = args[at + 2]
      local state = record.place(base, id)
      if known[i] then
        words[i] = 'seen'
      elseif not state and not anew[id] then
        words[i], anew[id] = 'ok', true
        for _, value in ipairs({id, args[at + 4], args[at + 5], args[at + 6], ''}) do list[#list + 1] = value end
        list[3] = list[3] + 1
      elseif state == 'failed' and redis.call('HGET', base .. ':job:' .. id, 'ended') == args[at + 3] then
        words[i] = 'ok'
        jobs.start_again(base, id, 'replayed', lines)
        revived = revived + 1
      else
        words[i] = 'superseded'
      end
    end
    inbox.remember(base, tokens, now)
    events.write(base, lines, now)
    woken(base, revived)
    if list[3] > 0 then add.jobs(base, list) end
    return words
  end

  request.register('reviveJobs', revive)

  request.register('dropMoved', function(base, args)
    local ids = {}
    for i = 3, #args do ids[#ids + 1] = args[i] end
    local call = {now = clock.now(), lines = {}, seen = glance.at(base)}
    local dropped = letters.drop(base, ids, call)
    events.write(base, call.lines, call.now)
    return dropped
  end, {'allow-oom'})
end
