-- writes: bulk writes. A bulk write adds many jobs of one writer (a Spark job, a backfill). The writer consists of many
-- tasks, each of which may run again.
--   planWrite   channel number -> order
--     The order of a run that is planned now. A newer run of a write has a greater order.
--   openWrite   channel number id token ttl app version [label [order]] -> status
--     Begin or continue a write. A call with another token takes the write over, and calls with the old token are
--     refused. status: "open", or "done" when nothing is left to do: the write is committed, or the application `app`
--     has committed this version or a later one. app '' = none. ttl: ms for which ids are remembered. label: by which
--     its writer finds it again. order: of the run that the token belongs to, 0 = the newest; a run older than the one
--     that opened the write last is refused with WRITEFENCED.
--   addToWrite  channel number id token rate quiet marks n { id name data opts extra }*n incarnation [may_end_early]
--       -> { now, depth, wait, inserted, replayed, duplicate, first duplicate, considered }
--     Jobs as for addJob, n may be 0. An id that this write has added before counts as `replayed` and has no other
--     effect. An id of any other job counts as `duplicate`. quiet "1": duplicates are remembered too, without an event;
--     "2": neither an event nor remembered.
--     marks: cmsgpack list, one mark for each row that its writer refused. rate: thousandths of a row per second for
--     the whole write, 0 = unlimited; wait: ms until its next call. depth: number of waiting jobs, without delayed
--     ones. may_end_early "1": the call ends when its budget is spent. considered: the number of jobs that it has
--     considered; the caller sends the others in its next call.
--   probeWrite  channel number id token quiet n id…n incarnation -> { replayed, duplicate, missing }
--     Count the rows that addToWrite would count as replayed or duplicate, and return which rows must be sent: missing
--     contains one digit per row, "1" for a row to send. A row is also sent if addToWrite would add it or write an
--     event for it: an id whose job has outlived the ttl of its result; without quiet, any id that is not in the
--     ledger. Do not call it for rows with a deduplication, which may replace the job of their own id.
--   endWrite    channel number id token state partitions -> { status, state }
--     state: committed | aborted, only from open. status "ok", "missing", "fenced" (another token; '' ends it anyway),
--     or "state" when it had ended otherwise.
--   getWrites   id… -> { flat | {} }…                            at most 100
--   listWrites  cursor count -> { next cursor | '', ids }         the newest first
--   getTransaction  app -> { version | '', write id | '' }
--   getDepth    -> depth
-- addToWrite and probeWrite are refused with WRITEFENCED unless the write is open under this token, so nothing is added
-- after an abort.
--   write:<id>        hash    state, token, began, ended, ttl, incarnation, runs, inserted, replayed, duplicate,
--                     rejected, partitions, app, version, label, order, next (when the rate permits the next row, ms)
--   written:<id>      set     the ledger: ids (and marks) that this write has added or counted; none with a ttl of 0
--   transaction:<app> string  "<version> <write id>" of the last commit
--   writes            zset    write id -> began; the newest 1,000
--   meta2             hash    planned: the last order that planWrite returned
-- All of these except `meta2` and `writes` expire.

local writes = {}
do
  local DAY = 86400000
  local LEAST_KEPT = 7 * DAY       -- how long the figures of a write are kept, for any shorter ttl
  local LONGEST = 90 * DAY
  local MOST_LISTED = 1000
  local MOST_JOBS = 500
  local MOST_READ = 100
  local FIELDS = 5

  local function fenced(id, text)
    fail('WRITEFENCED', 'write ' .. id .. ' ' .. text)
  end

  local function ledger_of(base, id)
    return base .. ':written:' .. id
  end

  local function keep(base, id, ttl)
    redis.call('PEXPIRE', base .. ':write:' .. id, digits(math.max(ttl, LEAST_KEPT)))
    if ttl > 0 then redis.call('PEXPIRE', ledger_of(base, id), digits(ttl)) end
  end

  local function transaction(base, app)
    local last = redis.call('GET', base .. ':transaction:' .. app)
    if not last then return nil end
    local version, id = string.match(last, '^(%d+) (.*)$')
    return tonumber(version), id
  end

  local function list(base, id, now)
    local key = base .. ':writes'
    redis.call('ZADD', key, digits(now), id)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now - LONGEST))
    redis.call('ZREMRANGEBYRANK', key, 0, -MOST_LISTED - 1)
    redis.call('PEXPIRE', key, digits(LONGEST))
  end

  -- Return the order of a run: greater than any before, also after an obliteration, because time advances.
  local function next_order(base)
    local meta = base .. ':meta2'
    local order = math.max(clock.now(), tonumber(redis.call('HGET', meta, 'planned') or 0) + 1)
    redis.call('HSET', meta, 'planned', digits(order))
    return order
  end

  request.register('planWrite', next_order)

  request.register('openWrite', function(base, args)
    local id, token, ttl, app = args[3], args[4], integer('ttl', args[5]), args[6]
    local version = app ~= '' and integer('version', args[7]) or nil
    if id == '' or token == '' then fail('ARGUMENT', 'a write needs an id and a token') end
    if ttl < 0 or ttl > LONGEST then fail('ARGUMENT', 'ttl must be 0 to 90 days, found ' .. args[5]) end
    local key = base .. ':write:' .. id
    local found = redis.call('HMGET', key, 'state', 'token', 'order')
    if found[1] == 'committed' then return 'done' end
    local last = app ~= '' and transaction(base, app)
    if last and last >= version then return 'done' end
    local order = integer('order', args[9] or '0')
    local known = tonumber(found[3] or 0)
    if order > 0 and order < known then fenced(id, 'belongs to a newer run of it') end
    if found[1] == 'aborted' and found[2] == token then fenced(id, 'was aborted') end
    -- The order of a write never falls, even if the clock was set back and the queue was obliterated.
    if order == 0 then order = math.max(next_order(base), known) end
    local now = clock.now()
    if not found[1] then
      redis.call('HSET', key, 'began', digits(now), 'inserted', '0', 'replayed', '0', 'duplicate', '0', 'rejected', '0',
        'incarnation', redis.call('HGET', base .. ':meta2', 'incarnation') or '')
      if app ~= '' then redis.call('HSET', key, 'app', app, 'version', digits(version)) end
    end
    if args[8] and args[8] ~= '' then redis.call('HSET', key, 'label', args[8]) end
    if found[2] ~= token then redis.call('HINCRBY', key, 'runs', 1) end
    redis.call('HSET', key, 'state', 'open', 'token', token, 'ttl', digits(ttl), 'order', digits(order))
    redis.call('HDEL', key, 'ended')
    keep(base, id, ttl)
    list(base, id, now)
    return 'open'
  end)

  -- Return the number of waiting jobs, without delayed ones.
  local function depth(base)
    local n = locations.fifo_count(base)
    for _, name in ipairs({'returned', 'lifo', 'prioritized', 'keyed'}) do
      n = n + redis.call('ZCARD', base .. ':' .. name)
    end
    return n
  end

  local function remembered(ledger, members, ttl)
    if ttl == 0 or #members == 0 then return {} end
    return redis.call('SMISMEMBER', ledger, unpack(members))
  end

  -- Return which of the jobs are in the ledger, by position.
  local function replayed(ledger, args, from, n, ttl)
    local ids, at_position, known, met = {}, {}, {}, {}
    for i = 1, n do
      local id = args[from + 1 + (i - 1) * FIELDS]
      if id ~= '' then
        if met[id] then known[i] = true end
        met[id] = true
        ids[#ids + 1], at_position[#ids + 1] = id, i
      end
    end
    for k, is_there in ipairs(remembered(ledger, ids, ttl)) do
      if is_there == 1 then known[at_position[k]] = true end
    end
    return known
  end

  -- Return how many of the first n jobs are known.
  local function count_known(known, n)
    local count = 0
    for i in pairs(known) do
      if i <= n then count = count + 1 end
    end
    return count
  end

  -- Add the ids and marks of this call to the ledger. Return the number of new marks.
  local function remember(ledger, args, from, n, known, left_out, marks, ttl)
    if ttl == 0 then return #marks end
    local members = {}
    for i = 1, n do
      local id = args[from + 1 + (i - 1) * FIELDS]
      if id ~= '' and not known[i] and not left_out[i] then members[#members + 1] = id end
    end
    if #members > 0 then in_chunks('SADD', ledger, nil, members) end
    return #marks > 0 and in_chunks('SADD', ledger, nil, marks) or 0
  end

  -- Return when the next row may come if rows come no faster than the rate, and in how many ms that is. kept: the value
  -- that the previous call stored, "<when the next row may come> <when that was computed>".
  local function paced(kept, rate, rows, now)
    if rate == 0 then return '0', 0 end
    local at, said = string.match(kept or '', '^(%S+) ?(%d*)$')
    at = tonumber(at or 0)
    if said and said ~= '' and clock.is_ahead(tonumber(said), now) then at = 0 end
    at = math.max(at, now) + rows * 1000000 / rate
    return string.format('%.3f %d', at, now), math.max(0, math.ceil(at - now))
  end

  local function open_write(base, id, token)
    local found = redis.call('HMGET', base .. ':write:' .. id, 'state', 'token', 'ttl', 'inserted', 'replayed',
      'duplicate', 'rejected', 'next')
    if not found[1] then fenced(id, 'is not known: it was never opened, or ended long ago') end
    if found[1] ~= 'open' then fenced(id, 'is ' .. found[1]) end
    if found[2] ~= token then fenced(id, 'was taken over by another run of it') end
    return found
  end

  local NOTHING = {}

  -- Return true if none of the jobs exists, for jobs with their own ids and no options. One command checks all of them,
  -- where checking each takes one command per job. An id that looks generated must be noted individually.
  local function all_new(base, args, from, jobs)
    if jobs.generated > 0 or jobs.numeric or next(jobs.extras) then return false end
    local keys, prefix = {}, base .. ':job:'
    for i = 1, jobs.n do keys[i] = prefix .. args[from + 1 + (i - 1) * FIELDS] end
    if exists(keys[1]) then return false end    -- most likely a rerun, whose other jobs exist too
    return redis.call('EXISTS', unpack(keys)) == 0
  end

  -- Return the positions that were not added, their number, and the existing job that blocks the first one.
  local function count_outcomes(outcomes)
    local left_out, n, sample = {}, 0, ''
    for k = 1, #outcomes, 3 do
      if outcomes[k + 1] ~= 'held' then
        left_out[outcomes[k]], n = true, n + 1
        if n == 1 then sample = outcomes[k + 2] end
      end
    end
    return left_out, n, sample
  end

  request.register('addToWrite', function(base, args)
    local id, rate, quiet, from = args[3], integer('rate', args[5]), args[6] ~= '0', 8
    local marks = args[7] ~= '' and cmsgpack.unpack(args[7]) or NOTHING
    local n = integer('count', args[from])
    if n > MOST_JOBS or #marks > MOST_JOBS then fail('ARGUMENT', 'at most ' .. MOST_JOBS .. ' jobs a call') end
    local may_end_early = #args == from + n * FIELDS + 2 and table.remove(args) == '1'
    local call_budget = may_end_early and budget.new() or nil
    local jobs = n > 0 and add.parse(args, from) or nil
    local write = open_write(base, id, args[4])
    local ledger, ttl = ledger_of(base, id), tonumber(write[3])
    local known = replayed(ledger, args, from, n, ttl)
    local again = count_known(known, n)
    local call, outcomes, _ = nil, NOTHING, nil
    if again < n then
      call, _, _, outcomes, n = add.all(base, jobs,
        {known = known, quiet = quiet, new = all_new(base, args, from, jobs), budget = call_budget})
      again = count_known(known, n)
    elseif jobs then
      incarnation.check(args[from + 1 + n * FIELDS], redis.call('HGET', base .. ':meta2', 'incarnation'))
    end
    local now = call and call.now or clock.now()
    local others, foreign, sample = count_outcomes(outcomes)
    local rejected = remember(ledger, args, from, n, known, args[6] == '1' and NOTHING or others, marks, ttl)
    local inserted = n - again - foreign
    local next_at, wait = paced(write[8], rate, n, now)
    redis.call('HSET', base .. ':write:' .. id, 'inserted', digits(write[4] + inserted),
      'replayed', digits(write[5] + again), 'duplicate', digits(write[6] + foreign),
      'rejected', digits(write[7] + rejected), 'next', next_at)
    keep(base, id, ttl)
    if call then wakeup.finish(base, call) end
    return {now, depth(base), wait, inserted, again, foreign, sample, n}
  end)

  -- Return the distinct ids of a probe.
  local function distinct(args, from, n)
    local ids, seen = {}, {}
    for i = 1, n do
      local id = args[from + i]
      if id == '' then fail('ARGUMENT', 'a probe needs ids, found none at ' .. i) end
      if not seen[id] then
        seen[id] = true
        ids[#ids + 1] = id
      end
    end
    return ids
  end

  -- Return the ids for which an existing job would block an add.
  local function standing(base, ids)
    if #ids == 0 then return NOTHING end
    local keys, found, prefix = {}, {}, base .. ':job:'
    for k, id in ipairs(ids) do keys[k] = prefix .. id end
    local count, held = redis.call('EXISTS', unpack(keys)), exists(base .. ':held')
    if count == #keys and not held then return ids end
    for k, id in ipairs(ids) do
      local there = count == #keys or (count > 0 and exists(keys[k])) or plain.find(base, id)
        or compact.has(base, id)
      if there and not (held and finish.is_over(base, id)) then found[#found + 1] = id end
    end
    return found
  end

  local function are_all(flags, n)
    for i = 1, n do
      if flags[i] ~= 1 then return false end
    end
    return true
  end

  -- Return how an add of each id would be counted (nil: the row must be sent), and the ids to add to the ledger.
  local function foreseen(base, is_met, ids, quiet)
    local statuses, unmet = {}, {}
    for k, id in ipairs(ids) do
      if is_met[k] == 1 then statuses[id] = 'replayed' else unmet[#unmet + 1] = id end
    end
    local taken = quiet and standing(base, unmet) or NOTHING
    for _, id in ipairs(taken) do statuses[id] = 'duplicate' end
    return statuses, taken
  end

  request.register('probeWrite', function(base, args)
    local id, quiet, n = args[3], args[5] ~= '0', integer('count', args[6])
    if n < 1 or n > MOST_JOBS or #args ~= 7 + n then fail('ARGUMENT', 'a probe takes 1 to ' .. MOST_JOBS .. ' ids') end
    local write = open_write(base, id, args[4])
    incarnation.check(args[7 + n], redis.call('HGET', base .. ':meta2', 'incarnation'))
    local ledger, ttl = ledger_of(base, id), tonumber(write[3])
    local ids = distinct(args, 6, n)
    local is_met = remembered(ledger, ids, ttl)
    if are_all(is_met, #ids) then
      redis.call('HSET', base .. ':write:' .. id, 'replayed', digits(write[5] + n))
      keep(base, id, ttl)
      return {n, 0, string.rep('0', n)}
    end
    local statuses, taken = foreseen(base, is_met, ids, quiet)
    local missing, again, foreign = {}, 0, 0
    for i = 1, n do
      local row = args[6 + i]
      local status = statuses[row]
      missing[i] = status and '0' or '1'
      if status == 'duplicate' then
        foreign, statuses[row] = foreign + 1, 'replayed'    -- another row with this id is a repetition
      elseif status then
        again = again + 1
      end
    end
    if ttl > 0 and foreign > 0 and args[5] == '1' then in_chunks('SADD', ledger, nil, taken) end
    if again + foreign > 0 then
      redis.call('HSET', base .. ':write:' .. id, 'replayed', digits(write[5] + again),
        'duplicate', digits(write[6] + foreign))
    end
    keep(base, id, ttl)
    return {again, foreign, table.concat(missing)}
  end)

  local function commit(base, id, key)
    local found = redis.call('HMGET', key, 'app', 'version', 'ttl')
    if not found[1] then return end
    local last = transaction(base, found[1])
    if last and last >= tonumber(found[2]) then return end
    redis.call('SET', base .. ':transaction:' .. found[1], found[2] .. ' ' .. id, 'PX', digits(LONGEST))
  end

  request.register('endWrite', function(base, args)
    local id, token, wanted, partitions = args[3], args[4], args[5], integer('partitions', args[6])
    if wanted ~= 'committed' and wanted ~= 'aborted' then fail('ARGUMENT', 'a write cannot become ' .. wanted) end
    local key, now = base .. ':write:' .. id, clock.now()
    local found = redis.call('HMGET', key, 'state', 'token', 'inserted')
    if not found[1] then return {'missing', ''} end
    if found[1] == wanted then return {'ok', wanted} end
    if token ~= '' and found[2] ~= token then return {'fenced', found[1]} end
    if found[1] ~= 'open' then return {'state', found[1]} end
    if wanted == 'committed' then commit(base, id, key) end
    redis.call('HSET', key, 'state', wanted, 'ended', digits(now), 'partitions', digits(partitions))
    events.one(base, 'written', '', wanted .. ' ' .. found[3] .. ' ' .. id, now)
    return {'ok', wanted}
  end, {'allow-oom'})

  register('getWrites', function(base, args)
    if #args > MOST_READ then fail('ARGUMENT', 'at most ' .. MOST_READ .. ' writes a call, found ' .. #args) end
    local found = {}
    for i, id in ipairs(args) do found[i] = redis.call('HGETALL', base .. ':write:' .. id) end
    return found
  end, {'no-writes'})

  register('listWrites', function(base, args)
    local from, count = args[1] == '' and 0 or integer('cursor', args[1]), integer('count', args[2])
    if count < 1 or count > MOST_READ then fail('ARGUMENT', 'count must be 1 to ' .. MOST_READ) end
    local ids = redis.call('ZREVRANGE', base .. ':writes', from, from + count - 1)
    return {#ids == count and digits(from + count) or '', ids}
  end, {'no-writes'})

  register('getTransaction', function(base, args)
    local version, id = transaction(base, args[1])
    return {version and digits(version) or '', id or ''}
  end, {'no-writes'})

  register('getDepth', depth, {'no-writes'})

  -- Return true if a store key of a write, `kind:name`, belongs to this queue and not to one that was obliterated.
  function writes.exists(base, kind, name)
    local id = name
    if kind == 'transaction' then id = select(2, transaction(base, name)) end
    local mark = id and redis.call('HGET', base .. ':write:' .. id, 'incarnation')
    return mark and mark == redis.call('HGET', base .. ':meta2', 'incarnation')
  end
end
