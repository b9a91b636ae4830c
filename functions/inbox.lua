-- inbox: receives the entries of other queues' outboxes.
--   deliverJobs  channel number n { token id name data opts extra origin }*n -> flat { position, status }
--     Add jobs as `addJob` does. Each token adds one job, even if it is sent several times. status: why
--     a position (from 1) was not added: "seen", or the status of addJob. Position 0 with "posted": the call wrote to
--     the outbox of this queue, which should be relayed. origin: '' or the origin of a dead letter, see
--     dead_letters.lua.
--   inbox  zset  token -> arrival, ms, never less than the arrival of the token before it: the last 10,000, and all
--          of the last hour up to 100,000
--   moved  zset  id -> failed ms: dead letters of other queues that have not ended here; the newest 100,000

local inbox = {}
do
  local FIELDS = 7
  local MOST_TOKENS, MOST_OF_LAST_HOUR, HOUR_MS = 10000, 100000, 3600000
  local MOST_FORGOTTEN = 1000    -- per call; a call adds at most MOST_JOBS
  local MOST_MOVED = 100000
  local MOST_JOBS = 100

  -- Return which of these tokens arrived before, by position.
  function inbox.known(base, tokens)
    local known, met = redis.call('ZMSCORE', base .. ':inbox', unpack(tokens)), {}
    for i, token in ipairs(tokens) do
      known[i] = known[i] or met[token]
      met[token] = true
    end
    return known
  end

  -- Forget the oldest tokens. The newest ones stay, because a client that was interrupted between two steps of a replay
  -- calls again, and its tokens must be known.
  local function forget_old(key, last)
    local over = redis.call('ZCARD', key) - MOST_TOKENS
    if over <= 0 then return end
    local old = redis.call('ZCOUNT', key, '-inf', digits(last - HOUR_MS))
    local forget = math.max(math.min(over, old), over + MOST_TOKENS - MOST_OF_LAST_HOUR)
    if forget > 0 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(forget, MOST_FORGOTTEN) - 1) end
  end

  function inbox.remember(base, tokens, now)
    local key, members = base .. ':inbox', {}
    -- The oldest are removed first. After the clock was set back, these must not be the ones that have just arrived.
    local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
    local last = math.max(now, tonumber(newest[2] or 0))
    for i, token in ipairs(tokens) do
      members[2 * i - 1], members[2 * i] = digits(last), token
    end
    in_chunks('ZADD', key, nil, members)
    forget_old(key, last)
  end

  -- Delete the dead letters of other queues that do not run here. Return their number.
  function inbox.drop_dead_letters(base, ids, call)
    local dropped = 0
    for _, id in ipairs(ids) do
      local state = record.location(base, id)
      if state and state ~= 'active' then
        removal.remove(base, id, state, call)
        dropped = dropped + 1
      elseif not state then
        record.lost(base, id, call)
      end
    end
    return dropped
  end

  -- Delete the oldest dead letters beyond the limit. Running ones end by themselves.
  local function cap(base, call)
    local key = base .. ':moved'
    local over = math.min(redis.call('ZCARD', key) - MOST_MOVED, MOST_JOBS)
    if over <= 0 then return end
    local oldest = redis.call('ZRANGE', key, 0, over - 1)
    inbox.drop_dead_letters(base, oldest, call)
    in_chunks('ZREM', key, nil, oldest)
  end

  -- In a queue of mode "keyed" a dead letter keeps its key. Dead letters without a key get one key per queue of origin.
  local function with_key(job)
    local origin, extra = cmsgpack.unpack(job.origin), job.extra or {}
    local wanted = routes.extra_of(origin[7] or '')
    extra.key = extra.key or (wanted and wanted.key) or origin[1]
    return extra
  end

  local function parse(base, args)
    local n = integer('count', args[3])
    if n < 1 or n > MOST_JOBS or #args ~= 3 + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[3] .. ' jobs')
    end
    local mode, tokens, list = redis.call('HGET', base .. ':meta2', 'mode'), {}, {}
    for i = 1, n do
      local at = 3 + (i - 1) * FIELDS
      local job = {id = args[at + 2], name = args[at + 3], data = args[at + 4], opts = args[at + 5]}
      job.extra = add.extra(args[at + 6])
      job.origin = args[at + 7]
      if job.origin ~= '' then job.failed_at = integer('failed', cmsgpack.unpack(job.origin)[6]) end
      if mode == 'keyed' and job.origin ~= '' then job.extra = with_key(job) end
      job.is_of_flow = flows.is_of_flow(job.extra)
      if not job.is_of_flow then add.check_mode(mode, 1, {job.extra}) end
      tokens[i], list[i] = args[at + 1], job
    end
    return tokens, list
  end

  -- Store the origin of an added job.
  local function mark(base, id, job, call)
    redis.call('HSET', base .. ':job:' .. id, 'letter', job.origin)
    redis.call('ZADD', queue_flags.create(base, 'moved', call.seen), digits(job.failed_at), id)
  end

  request.register('deliverJobs', function(base, args)
    local tokens, list = parse(base, args)
    local known, call, answer, marked = inbox.known(base, tokens), queue_flags.call(base), {}, false
    for i, job in ipairs(list) do
      local id, status = job.id, 'seen'
      if not known[i] and job.is_of_flow then
        flows.receive(base, job, call)
        status = 'received'
      elseif not known[i] then
        id, status = add.one(base, job, call)
      end
      if status == 'received' then
        -- It was a message, or a job of a flow, whose plan notes a refusal.
      elseif status ~= 'added' then
        answer[#answer + 1] = i
        answer[#answer + 1] = status
      elseif job.failed_at then
        mark(base, id, job, call)
        marked = true
      end
    end
    inbox.remember(base, tokens, call.now)
    if marked then
      -- Claims then read the whole record, including the origin.
      redis.call('HSET', base .. ':meta2', 'touched', '1')
      cap(base, call)
    end
    wakeup.finish(base, call)
    if call.seen.posted or call.seen.flow_work then
      answer[#answer + 1] = 0
      answer[#answer + 1] = 'posted'
    end
    return answer
  end)
end
