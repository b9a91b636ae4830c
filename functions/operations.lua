-- operations: the records of bulk operations. Their base key is the one of the queue `system/ops`.
--   addTargets        id start packed -> "ok"                          idempotent
--   createOperation   channel number id document ticket size -> created ms     size: the number of its jobs
--   startOperation    channel number id ticket settings name data audit -> status
--     status: "started"; "known" if it was started with this ticket before; "missing", "ticket", or "state <state>".
--     Adds a job with the id of the operation, which runs it. settings: msgpack; audit: a line, see audit.lua.
--   advanceOperation  id position next chunk done watched { reason count }… -> { state, position }
--     Note that the jobs from `position` up to `next` were handled. chunk: the position where the chunk with the job
--     `next` begins; done: the number of changed jobs. If another run has noted the step, nothing changes. The last
--     step ends the operation. watched: msgpack of the restarted jobs whose failures stop the operation; '' leaves them
--     as they are.
--   endOperation      channel number id state reason [audit] -> status        state: cancelled, stopped
--   getTargets        id start -> packed | ''                           start `watched`: the watched jobs
--   getOperations     id… -> { flat | {} }…                             at most 100
--   listOperations    -> ids, the newest first
--   store:
--     operation:<id>          hash  document, ticket, state, created, started, ended, settings, position, chunk, done,
--                             size, "r:<reason>" (refused jobs), stop_reason; expires
--     operation_targets:<id>  hash  position of the first job -> msgpack of a queue and the ids of a chunk of jobs;
--                             watched
--     operations              zset  id -> created; the newest 1,000

do
  local TICKET_MS, KEPT_MS, MOST_LISTED, MOST_READ, MOST_TARGETS = 900000, 30 * 86400000, 1000, 100, 65536

  register('addTargets', function(base, args)
    if #args[3] > MOST_TARGETS * 4 then fail('ARGUMENT', 'a chunk of jobs is too large') end
    redis.call('HSET', base .. ':operation_targets:' .. args[1], args[2], args[3])
    redis.call('PEXPIRE', base .. ':operation_targets:' .. args[1], digits(TICKET_MS))
    return 'ok'
  end)

  request.register('createOperation', function(base, args)
    local id, now, list = args[3], clock.now(), base .. ':operations'
    redis.call('HSET', base .. ':operation:' .. id, 'document', args[4], 'ticket', args[5], 'size', args[6],
      'state', 'previewed', 'created', digits(now), 'position', '0', 'chunk', '0', 'done', '0')
    redis.call('PEXPIRE', base .. ':operation:' .. id, digits(TICKET_MS))
    redis.call('ZADD', list, digits(now), id)
    redis.call('ZREMRANGEBYSCORE', list, '-inf', digits(now - KEPT_MS))
    redis.call('ZREMRANGEBYRANK', list, 0, -MOST_LISTED - 1)
    redis.call('PEXPIRE', base .. ':operation_targets:' .. id, digits(TICKET_MS))
    return now
  end)

  request.register('startOperation', function(base, args)
    local id, key = args[3], base .. ':operation:' .. args[3]
    audit.check(args[8])
    local found = redis.call('HMGET', key, 'state', 'ticket', 'size')
    if not found[1] then return 'missing' end
    if found[2] ~= args[4] then return 'ticket' end
    if redis.call('HEXISTS', key, 'started') == 1 then return 'known' end
    if found[1] ~= 'previewed' then return 'state ' .. found[1] end
    local call = queue_flags.call(base)
    local is_empty = found[3] == '0'
    redis.call('HSET', key, 'state', is_empty and 'done' or 'running', 'started', digits(call.now),
      'settings', args[5])
    if is_empty then redis.call('HSET', key, 'ended', digits(call.now)) end
    redis.call('PEXPIRE', key, digits(KEPT_MS))
    redis.call('PEXPIRE', base .. ':operation_targets:' .. id, digits(KEPT_MS))
    if not is_empty then add.one(base, {id = id, name = args[6], data = args[7], opts = ''}, call) end
    audit.append(base, args[8])
    wakeup.finish(base, call)
    return 'started'
  end)

  register('advanceOperation', function(base, args)
    local id, position, following = args[1], integer('position', args[2]), integer('next', args[3])
    local key, targets = base .. ':operation:' .. id, base .. ':operation_targets:' .. id
    if #args[6] > MOST_TARGETS then fail('ARGUMENT', 'the list of watched jobs is too large') end
    local found = redis.call('HMGET', key, 'state', 'position', 'size')
    if not found[1] then return {'missing', 0} end
    if tonumber(found[2]) ~= position then return {found[1], tonumber(found[2])} end
    redis.call('HSET', key, 'position', digits(following), 'chunk', args[4])
    redis.call('HINCRBY', key, 'done', args[5])
    if args[6] ~= '' and found[1] == 'running' then redis.call('HSET', targets, 'watched', args[6]) end
    for i = 7, #args - 1, 2 do redis.call('HINCRBY', key, 'r:' .. args[i], args[i + 1]) end
    if found[1] == 'running' and following >= tonumber(found[3]) then
      found[1] = 'done'
      redis.call('HSET', key, 'state', 'done', 'ended', digits(clock.now()))
      redis.call('UNLINK', targets)
    end
    return {found[1], following}
  end)

  request.register('endOperation', function(base, args)
    local id, key, line = args[3], base .. ':operation:' .. args[3], args[6]
    if line then audit.check(line) end
    local state = redis.call('HGET', key, 'state')
    if not state then return 'missing' end
    if state ~= 'running' and state ~= 'previewed' then return 'state ' .. state end
    redis.call('HSET', key, 'state', args[4], 'stop_reason', args[5], 'ended', digits(clock.now()))
    redis.call('PEXPIRE', key, digits(KEPT_MS))
    redis.call('UNLINK', base .. ':operation_targets:' .. id)
    if line then audit.append(base, line) end
    return 'ok'
  end, {'allow-oom'})

  register('getTargets', function(base, args)
    return redis.call('HGET', base .. ':operation_targets:' .. args[1], args[2]) or ''
  end, {'no-writes'})

  register('getOperations', function(base, args)
    local found = {}
    for i = 1, math.min(#args, MOST_READ) do found[i] = redis.call('HGETALL', base .. ':operation:' .. args[i]) end
    return found
  end, {'no-writes'})

  register('listOperations', function(base)
    return redis.call('ZREVRANGE', base .. ':operations', 0, MOST_READ - 1)
  end, {'no-writes'})
end
