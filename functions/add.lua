-- add: adds jobs. No other code creates a job.
--   addJob    channel number n { id name data opts extra }*n incarnation -> { now, first, ids, outcomes, added }
--     id      '' for a generated one; extra: '', or 'k' and a key if that is the only option, or cmsgpack { delay | at,
--             ttl, reply, priority, lifo, key, cost, dedup }, ms, a reply channel, thousandths of a token, { id, ttl,
--             mode } (see dedup.lua)
--     first   the first generated id when all generated ids are consecutive; otherwise '' and `ids` lists them in order
--     outcomes  flat { position, status, id }: positions (from 1) that were not added: "duplicate" or "completed", with
--               the id of the existing job; and added jobs that wait for the end of another job: "held"
--     added     the call has considered the first `added` jobs. Its budget was spent then, and the caller sends the
--               others in its next call.
-- O(n). The whole call is refused when memory is full. Nothing is written before every argument has been read.

local add = {}
local FIELDS = 5
-- The number of jobs that a call adds between two looks at the clock. Jobs with deduplication, and jobs whose keys are
-- costly to review, cost several times as much as others.
local STEP, COSTLY_STEP = 64, 16
local NOTHING = {}
local KEY_ALONE = 107            -- 'k'; packed options begin with a byte above 127

-- Return the options of one add, nil for ''.
function add.extra(text)
  if string.byte(text) == KEY_ALONE then return {key = string.sub(text, 2), alone = true} end
  return text ~= '' and cmsgpack.unpack(text) or nil
end

-- Read an argument list that contains, from args[from] on, n { id name data opts extra }*n incarnation.
function add.parse(args, from)
  local n = integer('count', args[from])
  local over = #args - from - n * FIELDS    -- 1 with the incarnation
  if n < 1 or over < 0 or over > 1 then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' jobs') end
  local extras, generated, numeric, last, extra, deduplicates = {}, 0, nil, nil, nil, false
  for i = 1, n do
    local at = from + (i - 1) * FIELDS
    local id = args[at + 1]
    if id == '' then
      generated = generated + 1
    elseif string.find(id, '^%d+$') then
      numeric = numeric or {}
      numeric[id] = true
    end
    local text = args[at + 5]
    if text ~= '' then
      -- Jobs of one kind are usually added together, with the same text.
      if text ~= last then
        last, extra = text, add.extra(text)
        deduplicates = deduplicates or extra.dedup ~= nil
      end
      extras[i] = extra
    end
  end
  return {args = args, from = from, n = n, extras = extras, generated = generated, numeric = numeric,
    deduplicates = deduplicates}
end

-- Reserve generated ids. They are consecutive unless a custom id that looks like a generated one was ever used.
-- numeric: the set of such ids in this call, nil if there are none; ever_numeric: an earlier call had one.
local function allocate(base, n, numeric, ever_numeric)
  if n == 0 then return '', nil end
  local last = redis.call('INCRBY', base .. ':id', digits(n))
  if not numeric and not ever_numeric then return digits(last - n + 1), nil end
  local ids, candidate, misses = {}, last - n + 1, 0
  while #ids < n do
    if candidate > last then last = redis.call('INCRBY', base .. ':id', n - #ids) end
    local id = digits(candidate)
    if not (numeric and numeric[id]) and not exists(base .. ':job:' .. id) then
      ids[#ids + 1] = id
    else
      misses = misses + 1
      -- Skip a long run of used ids in growing steps. Checking each of them would be unbounded work.
      if misses % 64 == 0 then
        last = redis.call('INCRBY', base .. ':id', 2 ^ (misses / 64 + 5))
        candidate = last
      end
    end
    candidate = candidate + 1
  end
  return '', ids
end

-- Return the status of an add whose own id is in use, or nil.
local function is_taken(base, id)
  local state = record.location(base, id)
  if (state == 'completed' or state == 'failed') and finish.remove_over(base, id) then state = nil end
  if not state then
    if string.find(id, '^%d+$') then redis.call('HSET', base .. ':meta', 'numeric_ids', '1') end
    return nil
  end
  return state == 'completed' and 'completed' or 'duplicate'
end

-- Return the status of an add whose deduplication id has an owner, and that owner. An owner without a status is the job
-- that the add replaces.
local function is_duplicate(base, wanted, call)
  local owner = dedup.owner(base, wanted, call.now)
  if not owner then return nil end
  local state = record.location(base, owner)
  if wanted.mode == 'throttle' then
    if state == 'completed' and not finish.is_over(base, owner) then return 'completed', owner end
    return 'duplicate', owner
  end
  if not locations.is_unstarted(state) and state ~= 'active' then return nil end
  -- The job has expired, but no sweep has failed it yet.
  local late = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', owner)
  if late and tonumber(late) <= call.now then return nil end
  if wanted.mode == 'simple' then return 'duplicate', owner end
  return nil, not record.has_started(base, owner) and owner or nil
end

-- Return the status of an add that an existing job blocks, and that job; or nil, after removing the job that the add
-- replaces. id: the add's own id or ''. For mode keep_last also return the job that the added one has to follow.
local function in_the_way(base, id, extra, call, name, data)
  local status, owner
  local wanted = extra and extra.dedup
  if wanted and wanted.mode == 'keep_last' then
    status = id ~= '' and is_taken(base, id)
    if status then return status, id end
    return successors.meet(base, wanted, name, data, call)
  end
  if wanted then status, owner = is_duplicate(base, wanted, call) end
  if status then return status, owner end
  if id ~= '' and id ~= owner then status = is_taken(base, id) end
  if status then return status, id end
  if owner then removal.remove(base, owner, 'replaced', call) end
  return nil
end

-- Return the time of the call in the form that records contain.
local function added_at(call)
  local added = call.added
  if not added then
    added = digits(call.now)
    call.added = added
  end
  return added
end

-- Write a job that waits in the line of its key and has no other options.
local function store_keyed(base, id, name, data, extra, call)
  local location, route = keyed.enter_first(base, id, extra, added_at(call), call, 'i')
  redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data, 'place', location, 'route', route)
end

-- Note the reply channel of a job that is being added.
local function note_waiter(base, id, channel, call)
  local is_new = not call.seen.waiters
  local key = queue_flags.create(base, 'waiters', call.seen)
  if not call.widened and (call.many or is_new) then
    redis.call('HSET', key, SEP, WIDENER, id, channel)
    redis.call('HDEL', key, SEP)
    call.widened = true
  else
    redis.call('HSET', key, id, channel)
  end
end

-- Write a job with options: its record takes one command. Return true if it is delayed. first: the job that it has to
-- follow, if there is one.
local function store_with_extra(base, id, name, data, opts, extra, call, first)
  local key, now = base .. ':job:' .. id, call.now
  local due = extra.at or (extra.delay and now + extra.delay)
  if extra.ttl then
    redis.call('ZADD', queue_flags.create(base, 'expiry', call.seen), digits(now + extra.ttl), id)
  end
  if extra.reply then note_waiter(base, id, extra.reply, call) end
  local deduped
  if first then
    deduped = dedup.follow(base, extra.dedup.id, first, id, call)
  elseif extra.dedup then
    deduped = dedup.own(base, extra.dedup, id, call)
  end
  local delayed, added, location, route, after = first or (due and due > now), added_at(call), nil, nil, nil
  if first then
    location, after = successors.put_off(base, id, extra, call)
    route = routes.of(extra, added)
  elseif delayed then
    location, route = scheduled.push(base, id, due, call), routes.of(extra, added)
  else
    location, route = routes.enter_first(base, id, extra, added, call, opts == '' and 'i' or 'o')
  end
  -- The most common case is written out: building an argument list costs more than the rest of this function.
  if route and opts == '' and not (delayed or deduped or extra.key) then
    redis.call('HSET', key, 'name', name, 'data', data, 'place', location, 'route', route, 'added', added)
    return false
  end
  local write = {'HSET', key, 'name', name, 'data', data, 'place', location}
  local function put(field, value) write[#write + 1], write[#write + 2] = field, value end
  if opts ~= '' then put('opts', opts) end
  if deduped then put('dedup', deduped) end
  if delayed then put('claim', '0 0 0') end
  if (delayed or route) and not extra.key then put('added', added) end
  if route then put('route', route) end
  if after then put('after', after) end
  redis.call(unpack(write))
  return delayed
end

-- Write a job without options other than `opts`.
local function store_plain(stream, key, id, name, data, opts)
  redis.call('HSET', key, 'name', name, 'data', data, 'place',
    'waiting s' .. redis.call('XADD', stream, '*', opts == '' and 'i' or 'o', id))
  if opts ~= '' then redis.call('HSET', key, 'opts', opts) end
end

-- Write a job under an id that is free.
local function store(base, id, name, data, opts, extra, call, first)
  local delayed, detail = false, name
  if extra then
    if extra.alone and opts == '' then
      store_keyed(base, id, name, data, extra, call)
    else
      delayed = store_with_extra(base, id, name, data, opts, extra, call, first)
    end
    if extra.key then detail = name .. RS .. extra.key end
  else
    store_plain(base .. ':stream', base .. ':job:' .. id, id, name, data, opts)
    call.startable = call.startable + 1
  end
  events.note(call.lines, 'added', id, detail)
  if delayed then events.note(call.lines, 'delayed', id) end
end

-- Add one job from within another function: { id, name, data, opts, extra } as above, extra a table or nil. The caller
-- ends with wakeup.finish. Return the job's id and "added", or the id of the existing job and the status.
function add.one(base, job, call)
  local id, extra = job.id, job.extra
  local status, owner, first = in_the_way(base, id, extra, call, job.name, job.data)
  if status then return owner, status end
  if id == '' then
    local first, ids = allocate(base, 1, nil, redis.call('HGET', base .. ':meta', 'numeric_ids') == '1')
    id = ids and ids[1] or first
  end
  store(base, id, job.name, job.data, job.opts, extra, call, first)
  return id, 'added'
end

-- A queue of mode "keyed" accepts only jobs with a key, one of mode "global" only jobs without a key.
function add.check_mode(mode, n, extras)
  if not mode then return end
  for i = 1, n do
    local key = extras[i] and extras[i].key
    if (mode == 'keyed') ~= (key ~= nil) then
      fail('INCOMPATIBLE', 'the queue is of mode ' .. mode .. ', and job ' .. i .. ' of this call has '
        .. (key and 'a key' or 'no key'))
    end
  end
end

-- Add the jobs of one step. first, ids: of `allocate`; nth: how many of these ids are used; how: see add.all. Return
-- how many ids are used now.
local function add_step(base, jobs, from, to, first, ids, nth, how, call, outcomes)
  local args, extras, known = jobs.args, jobs.extras, how.known
  local counter, text_of = tonumber(first), counting()
  local stream, prefix, added = base .. ':stream', base .. ':job:', nil
  for i = from, to do
    local at = jobs.from + (i - 1) * FIELDS
    local own, extra = args[at + 1], extras[i]
    local id = own
    if own == '' then
      nth = nth + 1
      id = ids and ids[nth] or text_of(counter + nth - 1)
    end
    if own == '' and not extra and not known then
      -- A plain job takes no other step. Most jobs are plain, so `store` and its look-ups are written out.
      local name = args[at + 2]
      store_plain(stream, prefix .. id, id, name, args[at + 3], args[at + 4])
      call.startable = call.startable + 1
      added = added or events.line(call.lines, 'added')
      local k = #added
      added[k + 1], added[k + 2] = id, name
    elseif not (known and known[i]) then
      local status, owner, leader
      local alone = own == '' and not (extra and extra.dedup)    -- a generated id is free
      if not (how.new or alone) then
        status, owner, leader = in_the_way(base, own, extra, call, args[at + 2], args[at + 3])
      end
      if status then
        local k = #outcomes
        outcomes[k + 1], outcomes[k + 2], outcomes[k + 3] = i, status, owner
        if not how.quiet then events.note(call.lines, 'duplicate', owner, extra and extra.dedup and extra.dedup.id) end
      else
        store(base, id, args[at + 2], args[at + 3], args[at + 4], extra, call, leader)
        if leader then outcomes[#outcomes + 1], outcomes[#outcomes + 2], outcomes[#outcomes + 3] = i, 'held', id end
      end
    end
  end
  return nth
end

-- Release the ids that the call has reserved and not used, if they are the last ones. first: '' for ids with gaps.
local function release_ids(base, first, reserved, used)
  if first == '' or used == reserved then return end
  if redis.call('GET', base .. ':id') == digits(first + reserved - 1) then
    redis.call('INCRBY', base .. ':id', used - reserved)
  end
end

-- Add the jobs of a parsed list. how: { known, quiet, new, budget }
--   known   the positions to leave out, as a set
--   quiet   write no events for duplicates
--   new     the caller knows that all jobs have their own ids, that these are free, and that no id occurs twice
--   budget  ends the call after a step when it is spent; without it, the call adds all jobs
-- Return the call, which the caller ends with wakeup.finish, and first, ids, outcomes and the number of jobs that were
-- considered.
function add.all(base, jobs, how)
  local args, n, extras = jobs.args, jobs.n, jobs.extras
  local call, outcomes = {now = clock.now(), lines = {}, startable = 0, many = n >= MANY}, {}
  local meta = redis.call('HMGET', base .. ':meta', 'paused', 'numeric_ids', 'mode', 'incarnation', 'limits')
  incarnation.check(args[jobs.from + 1 + n * FIELDS], meta[4])
  add.check_mode(meta[3], n, extras)
  -- A plain add needs no other flags of its queue.
  call.seen = next(extras) and queue_flags.at(base) or {paused = meta[1] == '1', limits = meta[5] == '1'}
  local first, ids = allocate(base, jobs.generated, jobs.numeric, meta[2] == '1')
  if not how.budget then
    add_step(base, jobs, 1, n, first, ids, 0, how, call, outcomes)
    return call, first, ids, outcomes, n
  end
  local is_costly, last, used = jobs.deduplicates or keyed.is_costly(call.seen), 0, 0
  repeat
    local from = last + 1
    last = math.min(last + (is_costly and COSTLY_STEP or STEP), n)
    used = add_step(base, jobs, from, last, first, ids, used, how, call, outcomes)
    if last < n then keyed.review(base, call) end    -- its time counts too
  until last == n or budget.has_added_enough(how.budget)
  release_ids(base, first, jobs.generated, used)
  return call, first, ids, outcomes, last
end

request.register('addJob', function(base, args)
  -- The number is an argument of its own, so a small call need not read the clock.
  local how = #args > STEP * FIELDS and {budget = budget.new()} or NOTHING
  local call, first, ids, outcomes, added = add.all(base, add.parse(args, 3), how)
  wakeup.finish(base, call)
  return {call.now, first, ids or {}, outcomes, added}
end)
