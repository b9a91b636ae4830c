-- add: adds jobs. No other code creates a job.
--   addJob    channel number n { id name data opts extra }*n incarnation -> { now, first, ids, outcomes, added }
--     id      '' for a generated one; extra: '', or 'k' and a key if that is the only option, or cmsgpack { delay | at,
--             ttl, reply, priority, lifo, key, cost, dedup }, ms, a reply channel, thousandths of a token, { id, ttl,
--             mode } (see dedup.lua)
--     first   the first generated id when all generated ids are consecutive; otherwise '' and `ids` lists them in order
--     outcomes  flat { position, status, id }, positions from 1. "duplicate" or "completed": the job was not added, and
--               `id` is the existing job. "held": the job was added, and waits for the end of another job.
--               May be '' instead of an empty list
--     added     the number of jobs that the call has considered. If it is lower than n, the budget of the call was
--               spent, and the caller sends the other jobs in its next call.
--   addJob    channel number incarnation name data extra -> as above, or "<now> <id>"
--     the short form, for one job with a generated id and without `opts`
--     "<now> <id>"  the job was pushed to an idle worker, see one_plain.lua
-- O(n). The whole call is refused when memory is full. Nothing is written before every argument has been read.

local add = {}
local FIELDS = 5
-- The number of jobs that a call adds between two looks at the clock. Jobs with deduplication, and jobs whose keys are
-- costly to review, cost several times as much as others.
local STEP, COSTLY_STEP = 64, 16
-- The first step of jobs that are not plain. The call does not yet know how long a job takes. A step of 64 takes 3 to
-- 6 ms while tables of the server grow, see GROWTH in budget.lua.
local FIRST_STEP = 40
add.STEP, add.COSTLY_STEP, add.FIRST_STEP = STEP, COSTLY_STEP, FIRST_STEP
local NOTHING = {}
local SMALL = entries.SMALL
-- the options that need no record, and the structures that they are in
local PLAIN, PLAIN_MARKS = {reply = true, ttl = true, plain = true}, {waiters = true, expiry = true}
local KEY_ALONE = 107            -- 'k'; packed options begin with a byte above 127

-- Return the options of one add, nil for ''. plain: the job needs no record, see plain.lua.
function add.extra(text)
  if string.byte(text) == KEY_ALONE then return {key = string.sub(text, 2), alone = true, compact = true} end
  if text == '' then return nil end
  local extra = cmsgpack.unpack(text)
  local is_plain, is_compact = true, compact_adds.fits(extra)
  for name in pairs(extra) do
    if not PLAIN[name] then is_plain = false end
  end
  extra.plain, extra.compact = is_plain, is_compact
  return extra
end

-- Read an argument list that contains, from args[from] on, n { id name data opts extra }*n incarnation.
function add.parse(args, from)
  local n = integer('count', args[from])
  local over = #args - from - n * FIELDS    -- 1 with the incarnation
  if n < 1 or over < 0 or over > 1 then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' jobs') end
  local extras, generated, numeric, last, extra, deduplicates, plain = {}, 0, nil, nil, nil, false, true
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
        deduplicates, plain = deduplicates or extra.dedup ~= nil, plain and extra.plain
      end
      extras[i] = extra
    end
  end
  return {args = args, from = from, n = n, extras = extras, generated = generated, numeric = numeric,
    deduplicates = deduplicates, plain = plain and generated == n}
end

-- Return a function that returns the next number of the queue, as text. n: how many numbers will be needed; at_once: a
-- function that returns how many to reserve with the next command; skips: true if jobs of the queue may have custom ids
-- that look like numbers, so that a number with a record is left out; numeric: the set of such custom ids in this call.
local function numbers_of(base, n, at_once, skips, numeric)
  local key, text_of, last, candidate, misses = base .. ':id', counting(), 0, 1, 0
  local function reserve()
    local wanted = math.min(n, at_once())
    last = entries.reserve(base, wanted)
    candidate = last - wanted + 1
  end
  local function is_used(id) return (numeric and numeric[id]) or exists(base .. ':job:' .. id) end
  return function()
    while true do
      if candidate > last then reserve() end
      local id = text_of(candidate)
      candidate = candidate + 1
      if not (skips and is_used(id)) then
        n = n - 1
        return id
      end
      misses = misses + 1
      -- Skip a long run of used ids in growing steps. Checking each of them would be unbounded work.
      if misses % 64 == 0 then
        last = redis.call('INCRBY', key, 2 ^ (misses / 64 + 5))
        candidate = last
      end
    end
  end
end

-- Return the status of an add whose own id is in use, or nil.
function add.is_taken(base, id)
  local state = plain.location(base, id)
  if (state == 'completed' or state == 'failed') and finish.remove_over(base, id) then state = nil end
  if not state then
    if string.find(id, '^%d+$') then redis.call('HSET', base .. ':meta2', 'numeric_ids', '1') end
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
  if not state or locations.is_final(state) then return nil end
  -- The job has expired, but no sweep has failed it yet.
  local late = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', owner)
  if late and tonumber(late) <= call.now then return nil end
  if wanted.mode == 'simple' then return 'duplicate', owner end
  return nil, not record.has_started(base, owner) and owner or nil
end

-- Return the status of an add that an existing job blocks, and that job. If no job blocks it, remove the job that the
-- add replaces, and return nil; for mode keep_last, the third value is the job that the added one has to follow. id:
-- the add's own id or ''.
local function in_the_way(base, id, extra, call, name, data)
  local status, owner
  local wanted = extra and extra.dedup
  if wanted and wanted.mode == 'keep_last' then
    status = id ~= '' and add.is_taken(base, id)
    if status then return status, id end
    return successors.meet(base, wanted, name, data, call)
  end
  if wanted then status, owner = is_duplicate(base, wanted, call) end
  if status then return status, owner end
  if id ~= '' and id ~= owner then status = add.is_taken(base, id) end
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

-- Note the end of the time to live of a job that is being added, and its reply channel.
local function note_marks(base, id, extra, call)
  if extra.ttl then marks.note_expiry(base, id, extra.ttl, call) end
  if extra.reply then marks.note_waiter(base, id, extra.reply, call) end
end

-- Write a job with options: its record takes one command. Return true if it is delayed. first: the job that it has to
-- follow, if there is one.
local function store_with_extra(base, id, name, data, opts, extra, call, first)
  local key, now = base .. ':job:' .. id, call.now
  local due = extra.at or (extra.delay and now + extra.delay)
  note_marks(base, id, extra, call)
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

-- Write a plain job. It has no record, only this entry, see plain.lua.
local function append_plain(fifo, entry, name, data, opts)
  if opts == '' then
    redis.call('XADD', fifo, entry, name, data)
  else
    redis.call('XADD', fifo, entry, name, data, opts, '')
  end
end

-- The same for a job of a call with other jobs.
local function store_plain(base, id, name, data, opts, call)
  if entries.is_special(data, opts) then entries.mark_special(base, tonumber(id), call) end
  append_plain(base .. ':fifo', id .. '-' .. digits(call.now), name, data, opts)
end

-- Write a job with a custom id and without other options.
local function store_own(base, id, name, data, opts, call)
  local entry = entries.append(base, id, opts == '' and 'i' or 'o', call)
  redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data, 'place', 'waiting p' .. entry)
  if opts ~= '' then redis.call('HSET', base .. ':job:' .. id, 'opts', opts) end
  call.startable = call.startable + 1
end

-- Write a job with a record under an id that is free.
local function store(base, id, name, data, opts, extra, call, first)
  local delayed, detail = false, name
  if not extra then
    store_own(base, id, name, data, opts, call)
  elseif extra.alone and opts == '' then
    store_keyed(base, id, name, data, extra, call)
  else
    delayed = store_with_extra(base, id, name, data, opts, extra, call, first)
  end
  if extra and extra.key then detail = name .. RS .. extra.key end
  events.note(call.lines, 'added', id, detail)
  if delayed then events.note(call.lines, 'delayed', id) end
end

local function one() return 1 end

-- Return a generated id for a job that gets a record.
function add.number(base)
  local next_number = numbers_of(base, 1, one, redis.call('HGET', base .. ':meta2', 'numeric_ids') == '1')
  return next_number()
end

-- Add one job from within another function: { id, name, data, opts, extra } as above, extra a table or nil. It gets a
-- record. The caller ends with wakeup.finish. Return the job's id and "added", or the id of the existing job and the
-- status.
function add.one(base, job, call)
  local id, extra = job.id, job.extra
  local status, owner, first = in_the_way(base, id, extra, call, job.name, job.data)
  if status then return owner, status end
  if id == '' then
    id = add.number(base)
    call.number = id
  end
  store(base, id, job.name, job.data, job.opts, extra, call, first)
  return id, 'added'
end

-- Refuse a job that does not fit the mode of the queue. mode: "keyed" (each job has a key) or "global" (no job has
-- one); i: the position of the job in the call.
function add.check_fits(mode, i, has_key)
  if (mode == 'keyed') ~= has_key then
    fail('INCOMPATIBLE', 'the queue is of mode ' .. mode .. ', and job ' .. i .. ' of this call has '
      .. (has_key and 'a key' or 'no key'))
  end
end

-- Refuse jobs that do not fit the mode of the queue, nil if it has none. extras: the options of each of the n jobs.
function add.check_mode(mode, n, extras)
  if not mode then return end
  for i = 1, n do add.check_fits(mode, i, (extras[i] and extras[i].key) ~= nil) end
end

-- Add one job of a list. Return the status of a job that was not added, and the job that blocks it; "held" and its id
-- for a job that waits for another one; nil for any other job.
local function add_other(base, jobs, i, next_number, call, new)
  local args, extra, at = jobs.args, jobs.extras[i], jobs.from + (i - 1) * FIELDS
  local id, name, data, opts = args[at + 1], args[at + 2], args[at + 3], args[at + 4]
  local own, status, owner, first = id ~= '', nil, nil, nil
  -- A generated id is free.
  if (own and not new) or (extra and extra.dedup) then
    status, owner, first = in_the_way(base, id, extra, call, name, data)
  end
  local number = next_number()
  if not own then
    id = number
    jobs.ids[#jobs.ids + 1] = id
  end
  if status then return status, owner end
  call.number, call.first = number, call.first or tonumber(number)
  if own or (extra and not (extra.plain or extra.compact)) then
    store(base, id, name, data, opts, extra, call, first)
  elseif extra and extra.compact then
    compact_adds.add(base, id, name, data, opts, extra, added_at(call), call)
    events.note(call.lines, 'added', id, extra.key and name .. RS .. extra.key or name)
  else
    store_plain(base, id, name, data, opts, call)
    if extra then note_marks(base, id, extra, call) end
    call.startable = call.startable + 1
    events.note(call.lines, 'added', id, name)
  end
  call.number = nil
  if first then return 'held', id end
end

-- Return the first of some ids and nothing else if they are consecutive, otherwise '' and the ids.
local function shortened(ids)
  if not ids[1] then return '', nil end
  if ids[#ids] - ids[1] == #ids - 1 then return ids[1], nil end
  return '', ids
end

-- Add the jobs of one step.
local function add_step(base, jobs, from, to, next_number, how, call, outcomes)
  local known = how.known
  for i = from, to do
    if not (known and known[i]) then
      local status, owner = add_other(base, jobs, i, next_number, call, how.new)
      if status then
        local k, extra = #outcomes, jobs.extras[i]
        outcomes[k + 1], outcomes[k + 2], outcomes[k + 3] = i, status, owner
        if status ~= 'held' and not how.quiet then
          events.note(call.lines, 'duplicate', owner, extra and extra.dedup and extra.dedup.id)
        end
      end
    end
  end
end

-- Return the fields of `meta2` that a plain add needs.
local function read_meta(base)
  return redis.call('HMGET', keys_of(base).meta2, 'paused', 'numeric_ids', 'mode', 'incarnation', 'limits', 'features',
    'shortest_lease')
end

-- Return the part of queue_flags.at that a plain add needs. meta: the fields that it has read.
local function seen_in(base, meta)
  return {paused = meta[1] and meta[1] ~= '0', limits = meta[5] and limits.are_open(base, meta[5]), features = meta[6],
    shortest_lease = tonumber(meta[7] or nil), event_rules = queue_flags.has_event_rules(meta[6])}
end

-- Return the part of queue_flags.at that an add of these jobs needs.
local function seen_for(base, jobs, meta)
  local seen = seen_in(base, meta)
  if not next(jobs.extras) then return seen end
  if not jobs.plain or not queue_flags.are_known(seen.features) then return queue_flags.at(base) end
  for name, is_there in pairs(queue_flags.some(base, seen.features, PLAIN_MARKS)) do seen[name] = is_there end
  return seen
end

-- Add the jobs of a parsed list. how: { known, quiet, new, budget, meta }
--   known   the positions to leave out, as a set
--   quiet   write no events for duplicates
--   new     the caller knows that all jobs have their own ids, that these are free, and that no id occurs twice
--   budget  ends the call after a step when it is spent; without it, the call adds all jobs
--   meta    of read_meta, if the caller has it
-- Return the call, which the caller ends with wakeup.finish, and first, ids, outcomes and the number of jobs that were
-- considered.
function add.all(base, jobs, how)
  local args, n, extras = jobs.args, jobs.n, jobs.extras
  local call, outcomes = {now = clock.now(), lines = {}, startable = 0, many = n >= MANY}, {}
  local meta = how.meta or read_meta(base)
  incarnation.check(args[jobs.from + 1 + n * FIELDS], meta[4])
  add.check_mode(meta[3], n, extras)
  call.seen = seen_for(base, jobs, meta)
  local is_costly, last = jobs.deduplicates or keyed.is_costly(call.seen), 0
  local most = is_costly and COSTLY_STEP or STEP
  local step = not how.budget and n or math.min(most, jobs.plain and STEP or FIRST_STEP)
  -- With deduplication, an add can start another job, whose entry takes the next number. Entries must have growing
  -- numbers, so numbers must not be reserved for later jobs.
  local function at_once() return jobs.deduplicates and 1 or step end
  local next_number = numbers_of(base, n, at_once, meta[2] == '1' or jobs.numeric, jobs.numeric)
  jobs.ids = {}
  repeat
    local from = last + 1
    last = math.min(last + step, n)
    add_step(base, jobs, from, last, next_number, how, call, outcomes)
    compact_adds.write(base, call)
    if last == n then break end
    keyed.review(base, call)    -- its time counts too
    step = budget.fitting(how.budget, last, most)
  until budget.has_added_enough(how.budget)
  local first, ids = shortened(jobs.ids)
  return call, first, ids, outcomes, last
end

request.register('addJob', function(base, args)
  -- A call with a few jobs cannot exceed a budget, so it does not read the clock.
  local how = #args > FIRST_STEP * FIELDS and {budget = budget.new()} or NOTHING
  if one_plain.is_short(args) then
    if one_plain.is_awaited(args) then
      local meta = read_meta(base)
      incarnation.check(args[3], meta[4])
      local channel, ttl = one_plain.reply_of(base, args, meta)
      if channel then return one_plain.add_awaited(base, args, channel, ttl, meta, clock.now()) end
      how = {meta = meta}
    end
    args = {args[1], args[2], '1', '', args[4], args[5], '', args[6], args[3]}
  end
  local call, first, ids, outcomes, added = add.all(base, add.parse(args, 3), how)
  call.args = args
  wakeup.finish(base, call)
  return {call.now, first, ids or {}, outcomes, added}
end)

-- Add the first jobs of a parsed list for another function of this queue. Return the call, which the caller ends with
-- wakeup.finish, and the number of jobs that were considered.
function add.fed(base, jobs)
  local call, _, _, _, added = add.all(base, jobs, {budget = budget.new(), quiet = true})
  return call, added
end

-- for grouped_adds.lua
add.numbers_of, add.read_meta, add.seen_in = numbers_of, read_meta, seen_in
