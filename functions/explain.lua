-- explain: states why a job does not run. It uses the functions by which a claim decides.
--   explainJob  id -> { state | '', now, name, ended, { gate… } }
--     ended  number of jobs of the queue that ended in the last RECENT_MINUTES
--     gate   { kind, until ms, since ms, count, by, detail }, each '' if it has no meaning for the kind. The gates are
--            in the order in which a claim meets them.
--       ended        since; detail: completed or failed, a space and the reason
--       running      since; by: the worker; detail: "revoked" or ''
--       signal       until; detail: the field `waits`, see signals.lua
--       children
--       delayed      until; detail: "follows" (waits for the end of another job), "retry" or ''
--       expired      since
--       paused       until; since; by: who has paused the queue; detail: the note
--       gate         until
--       window       until; count: the starts that the window permits; by: the key, '' for the queue; detail: "queue"
--                    or "key"
--       queue-limit  count: jobs that run; detail: the limit
--       key-paused   until; detail: the key
--       key-busy     count: jobs of the key that run or wait for their next attempt; by: one of them; since: when it
--                    began; until: its next attempt; detail: the key
--       bucket       until; detail: the key
--       behind       count: about how many jobs start before
-- A job without a gate starts at the next claim of one slot. Due jobs that no claim has promoted yet are still
-- `delayed`.

do
  local RECENT_MINUTES = 5
  local MOST_HEADS = 20            -- expired jobs that are skipped in one source
  local MOST_PASSED_BYTES = 1000000
  local MOST_LOOKED = 200          -- running jobs that are looked through for the holder of a key

  local function gate(gates, kind, values)
    local function text(value) return type(value) == 'number' and digits(value) or value or '' end
    gates[#gates + 1] = {kind, text(values.to), text(values.since), text(values.count), text(values.by),
      text(values.detail)}
  end

  local function is_expired(base, id, call)
    local at = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', id)
    return at and tonumber(at) <= call.now and tonumber(at) or nil
  end

  local function started_at(base, id)
    return tonumber(string.match(redis.call('HGET', base .. ':job:' .. id, 'claim') or '', '^%d+ (%d+)') or nil)
  end

  -- The gates of jobs that do not wait for a claim, by state. They get the entry of the location.
  local stands = {}

  local function explain_end(base, gates, id, state)
    local kept = redis.call('HMGET', base .. ':job:' .. id, 'ended', 'reason')
    if not kept[1] then
      kept[1] = select(3, plain.outcome(base, id)) or false
    end
    gate(gates, 'ended', {since = kept[1], detail = state .. ' ' .. (kept[2] or '')})
  end

  function stands.completed(base, gates, id) explain_end(base, gates, id, 'completed') end
  function stands.failed(base, gates, id) explain_end(base, gates, id, 'failed') end

  function stands.active(base, gates, id, entry, call)
    local row, since = runs.row(base, id, entry), started_at(base, id)
    if row and not since then
      local _, fields = plain.find(base, id)
      if fields then since = plain.claim_of(base, row, fields, call.now) end
      since = since or compact.claim_of(base, id, entry)
    end
    local revoked = call.seen.revoking and redis.call('SISMEMBER', base .. ':revoking', id) == 1
    gate(gates, 'running', {since = since, by = row and row[2], detail = revoked and 'revoked'})
  end

  function stands.suspended(base, gates, id)
    local waits = redis.call('HGET', base .. ':job:' .. id, 'waits')
    gate(gates, 'signal', {to = signals.deadline(base, id), detail = waits})
  end

  stands['waiting-children'] = function(_, gates) gate(gates, 'children', {}) end

  function stands.delayed(base, gates, id, entry)
    local due = tonumber(redis.call('ZSCORE', base .. ':scheduled', entry .. id) or 0)
    local follows = due == successors.NEVER
    local failures = redis.call('HGET', base .. ':job:' .. id, 'failures')
    gate(gates, 'delayed', {to = not follows and due, detail = follows and 'follows' or failures and 'retry'})
  end

  local function explain_queue(base, gates, call)
    local seen = call.seen
    local ends = seen.paused
    if ends == true or (ends and ends > call.now) then
      local who, since, note = settings.pause_of(base)
      gate(gates, 'paused', {to = ends ~= true and ends, since = since, by = who, detail = note})
    end
    if not seen.limits then return end
    local set = redis.call('HMGET', base .. ':limits', 'concurrency', 'rate_max', 'rate_ms', 'gate')
    if set[4] and tonumber(set[4]) > call.now then gate(gates, 'gate', {to = tonumber(set[4])}) end
    if set[2] then
      local rate = base .. ':rate'
      local left, at = limits.room(rate, redis.call('ZCARD', rate), tonumber(set[2]), tonumber(set[3]), call.now)
      if left == 0 then gate(gates, 'window', {to = at, count = set[2], detail = 'queue'}) end
    end
    if set[1] then
      local left, running = limits.run_room(base, set[1])
      if left == 0 then gate(gates, 'queue-limit', {count = running, detail = set[1]}) end
    end
  end

  -- Return a running job of a key and when it began, nil if none is found.
  local function holder_of(base, key)
    local ids, keys = runs.jobs_from(base, '0', digits(MOST_LOOKED - 1))
    for i, id in ipairs(ids) do
      if keys[i] == key then return id, started_at(base, id) or compact.started_at(base, id) end
    end
  end

  -- Return a job other than `id` that waits for its next attempt and holds its key, nil if there is none.
  local function resting_of(base, id, key)
    for _, rest in ipairs(redis.call('SSCAN', base .. ':keyrest:' .. key, '0', 'COUNT', '2')[2]) do
      if rest ~= id then return rest end
    end
  end

  local function explain_busy(base, gates, id, key, running)
    if running > 0 then
      local by, since = holder_of(base, key)
      return gate(gates, 'key-busy', {count = running, by = by, since = since, detail = key})
    end
    local rest = resting_of(base, id, key)
    if not rest then return end
    local _, sequence = record.location(base, rest)
    local due = sequence and redis.call('ZSCORE', base .. ':scheduled', sequence .. rest)
    gate(gates, 'key-busy', {count = 1, by = rest, to = due and tonumber(due), detail = key})
  end

  -- Return a waiting job of a key by its position in the line.
  local function in_line(base, key, position)
    local member = key_lines.range(base, key, position, 1)[1]
    return member and string.sub(member, 18)
  end

  local function cost_of(base, id)
    local route = keyed.route_of(base, id)
    return route and tonumber(route.cost) or 0
  end

  -- Return when the bucket of a key can pay for the first job that has not expired, nil if no job of the key waits. A
  -- claim also takes the expired jobs before it, so the bucket must be able to pay for each of them. It refunds their
  -- tokens.
  local function bucket_opens(base, key, bucket, call)
    local cost
    for position = 0, MOST_HEADS - 1 do
      local id = in_line(base, key, position)
      if not id then break end
      cost = math.max(cost or 0, cost_of(base, id))
      if not is_expired(base, id, call) then break end
    end
    return cost and limits.affordable_at(bucket, keyed.tokens_of(base, key, bucket, call), cost, call.now)
  end

  local function explain_key(base, gates, id, key, call)
    local limits_now = keyed.limits_of(base, key, call)
    local pause, window = keyed.opens(base, key, {max = limits_now.max, length = limits_now.length}, call)
    local bucket = limits_now.bucket and bucket_opens(base, key, limits_now.bucket, call)
    if pause and pause > call.now then gate(gates, 'key-paused', {to = pause, detail = key}) end
    local running = keyed.running_counts(base, {key}, call)[key]
    if keyed.room(base, key, limits_now, running, call) <= 0 then explain_busy(base, gates, id, key, running) end
    if window and window > call.now then
      gate(gates, 'window', {to = window, count = limits_now.max, by = key, detail = 'key'})
    end
    if bucket and bucket > call.now then gate(gates, 'bucket', {to = bucket, detail = key}) end
  end

  -- The first jobs of each source, in the order in which claims take them. An expired job does not start, so the claim
  -- takes the next one.
  local heads = {}

  local function from_list(command, name)
    return function(base, place)
      local found = redis.call(command, base .. ':' .. name, digits(place), digits(place))[1]
      return found and locations.id_of(name, found)
    end
  end

  heads.returned = from_list('ZRANGE', 'returned')
  heads.lifo = from_list('ZREVRANGE', 'lifo')
  heads.prioritized = from_list('ZRANGE', 'prioritized')

  -- Return the first job of `fifo` that has not expired, nil if none is found. This reads one entry at a time, because
  -- an entry contains its payload.
  local function first_in_fifo(base, call)
    local fifo, bytes = base .. ':fifo', 0
    local at = entries.last_delivered(fifo)
    local repeats = entries.may_repeat(base, at) and base .. ':results'
    for _ = 1, MOST_HEADS do
      local entry = redis.call('XRANGE', fifo, '(' .. at, '+', 'COUNT', '1')[1]
      if not entry then return nil end
      local id = entries.job_of(entry[1], entry[2])
      local is_over = repeats and redis.call('HEXISTS', repeats, id) == 1
      if not is_over and not is_expired(base, id, call) then return id end
      at, bytes = entry[1], bytes + #entry[2][2]
      if bytes > MOST_PASSED_BYTES then return nil end
    end
  end

  local function can_pay(base, key, id, call)
    local bucket = keyed.limits_of(base, key, call).bucket
    local tokens = bucket and keyed.tokens_of(base, key, bucket, call)
    return not bucket or limits.affordable_at(bucket, tokens, cost_of(base, id), call.now) <= call.now
  end

  -- Return the first job of the ready keys that has not expired, nil if none is found. The keys take turns. A key whose
  -- first job has expired comes last, with its next job, unless its bucket cannot pay for that one.
  local function first_in_lines(base, call)
    local keys, rank = redis.call('ZRANGE', base .. ':ready', '0', digits(MOST_HEADS - 1)), {}
    for turn = 1, MOST_HEADS do
      local key = keys[turn]
      if not key then return nil end
      local at = rank[key] or 0
      local id = in_line(base, key, at)
      if id and (at == 0 or can_pay(base, key, id, call)) then
        if not is_expired(base, id, call) then return id end
        keys[#keys + 1], rank[key] = key, at + 1
      end
    end
  end

  local function first_of(base, name, call)
    if name == 'fifo' then return first_in_fifo(base, call) end
    if name == 'ready' then return first_in_lines(base, call) end
    for place = 0, MOST_HEADS - 1 do
      local id = heads[name](base, place)
      if not id or not is_expired(base, id, call) then return id end
    end
  end

  -- Return the job that the next claim of one slot starts, nil if none waits.
  local function next_job(base, call)
    for _, name in ipairs(claim.sources(call.seen)) do
      local id = first_of(base, name, call)
      if id then return id end
    end
  end

  -- Return about how many jobs of the other sources start before a job at this position in one of them.
  local function others_before(base, source, position)
    local before = redis.call('ZCARD', base .. ':returned')
    local sizes = {fifo = locations.fifo_count(base), lifo = redis.call('ZCARD', base .. ':lifo'),
      ready = redis.call('ZCARD', base .. ':ready')}
    for name, size in pairs(sizes) do
      if name ~= source then before = before + (source == 'prioritized' and size or math.min(size, position + 1)) end
    end
    return before
  end

  local positions = {}    -- by source: the position of a job in it

  function positions.returned(base, id) return redis.call('ZRANK', base .. ':returned', id) end
  function positions.lifo(base, id) return redis.call('ZREVRANK', base .. ':lifo', id) end
  function positions.prioritized(base, id, entry) return redis.call('ZRANK', base .. ':prioritized', entry .. id) end

  -- The numbers of the entries have gaps, so this is the highest possible position.
  function positions.fifo(base, _, entry)
    local last = tonumber(string.match(entries.last_delivered(base .. ':fifo'), '^%d+'))
    local ahead = tonumber(string.match(entry, '^p(%d+)')) - last - 1
    return math.max(0, math.min(ahead, locations.fifo_count(base) - 1))
  end

  function positions.ready(base, id, entry)
    local route = keyed.route_of(base, id)
    local rank = key_lines.rank(base, route.key, route.sequence .. entry .. id) or 0
    return rank + (redis.call('ZRANK', base .. ':ready', route.key) or 0)
  end

  local SOURCES = {r = 'returned', i = 'lifo', p = 'fifo'}

  local function explain_position(base, gates, id, state, entry, call)
    if next_job(base, call) == id then return end
    local source = SOURCES[string.sub(entry, 1, 1)]
    if state == 'prioritized' then source = state elseif state == 'key-waiting' then source = 'ready' end
    local position = positions[source](base, id, entry) or 0
    local before = position + (source == 'returned' and 0 or others_before(base, source, position))
    gate(gates, 'behind', {count = math.max(1, before)})
  end

  local function explain_waiting(base, gates, id, state, entry, call)
    local late = is_expired(base, id, call)
    if late then return gate(gates, 'expired', {since = late}) end
    explain_queue(base, gates, call)
    local before, route = #gates, keyed.route_of(base, id)
    if route then explain_key(base, gates, id, route.key, call) end
    if state == 'delayed' then return end
    local is_first = #gates > before and positions.ready(base, id, entry) == 0
    if not is_first then explain_position(base, gates, id, state, entry, call) end
  end

  register('explainJob', function(base, args)
    local id, now = args[1], clock.now()
    local state, entry = plain.location(base, id)
    if not state or (locations.is_final(state) and finish.is_over(base, id)) then return {'', now, '', 0, {}} end
    local call, gates = {now = now, seen = queue_flags.at(base)}, {}
    if stands[state] then stands[state](base, gates, id, entry, call) end
    if state == 'delayed' or not stands[state] then explain_waiting(base, gates, id, state, entry, call) end
    local name = redis.call('HGET', base .. ':job:' .. id, 'name') or plain.name_of(base, id)
    return {reading.state_of(base, id), now, name, metrics.ended_since(base, RECENT_MINUTES, now), gates}
  end, {'no-writes'})
end
