-- one_run: settles the run of one plain job, and claims the next jobs or lets the worker wait. A worker makes this call
-- if it runs one job at a time, or gets one at a time, see one_plain.lua. It has the same effect as the general path of
-- settle.lua. That path builds tables and functions for any number of runs and jobs of any kind, which is half of
-- the instructions of a call with one run.

local one_run = {}
local SMALL = entries.SMALL
-- The number of arguments of a call with one group of one run and no other run, and the positions of some of them.
local ARGUMENTS, RAN, STARTED, ENTRY, PAYLOAD = 16, 7, 10, 13, 15
-- The flags of a call, and whether the worker accepts pushes. With "g" it has received the last one.
local ACCEPTS = {[''] = false, p = true, pg = true}
-- the structures that a queue may have here
local KNOWN = {'waiters', 'held', 'results'}
local MOST_CLAIMED = 8

do
  -- matches the flags of a queue in which a settle or a claim looks at more than this file does; made by the first call
  local others
  local last_features, has = nil, nil

  -- Return which of the known structures may exist: { <structure> = true }; nil if others may exist too.
  local function known_of(features)
    if features == last_features then return has end
    others = others or queue_flags.pattern_without(KNOWN)
    last_features, has = features, not string.find(features, others) and queue_flags.flagged_in(features)
    return has
  end

  -- Return what the call has to know of the queue, as queue_flags.at does; nil if the queue has something that this
  -- file does not look at.
  function one_run.flags_of(base, meta)
    local features = meta[4]
    if meta[1] and meta[1] ~= '0' or meta[2] and meta[2] ~= '' or meta[6] or not queue_flags.are_known(features)
      or not queue_flags.is_compared(base) then return nil end
    local known = known_of(features)
    return known and {features = features, horizon = number_of(meta[5]), incarnation = meta[3],
      keep = {completed = '', failed = ''}, shortest_lease = number_of(meta[7]),
      special = number_of(meta[8]) or 0, waiters = known.waiters, held = known.held, results = known.results}
  end
end

-- Return the duration of the run of a settleAndClaim call, ms. Return nil if the call has more than one run, or one
-- that this file does not settle.
local function duration_of(args)
  if #args ~= ARGUMENTS or ACCEPTS[args[6]] == nil or args[9] ~= '1' or args[11] ~= ''
    or args[12] ~= '1' or args[14] ~= '1' or args[16] ~= '0' or #args[PAYLOAD] > SMALL then return nil end
  local ran = string.match(args[RAN], '^(%d+) 0$')
  return ran and string.find(args[STARTED], '^%d+$') and string.find(args[ENTRY], '^%d+%-%d+$') and tonumber(ran)
end

do
  local count, age

  -- Return true if the outcome of a job goes into `results`, and the retention of the queue keeps it there; and if all
  -- entries that were added after the job are small plain jobs (`special` in entries.lua). Sets in seen: kept, the
  -- number of kept outcomes.
  local function is_usual(base, number, started, now, seen)
    if not count then count, age = finish.kept_by('') end
    if not number or number < seen.special or now - started > age * completing.LONG_RUN then return false end
    seen.kept = results.count(base, seen)
    return not results.is_late(base, number, number, count, seen)
  end

  -- Store the outcome of the job and notify the clients that wait for it.
  local function store(base, id, payload, started, call)
    local seen = call.seen
    local key = queue_flags.create(base, 'results', seen)
    redis.call('HSET', key, id, digits(call.now) .. ' ' .. started .. ' ' .. payload)
    local channels = seen.waiters and redis.call('HGET', base .. ':waiters', id)
    if not channels then return end
    finish.answer(base, channels, 'completed', id, payload)
    call.notified = true
    finish.await_receipts(base, {id}, call.now, seen)
    finish.release_ended(base, 1, call)
  end

  -- Remove the oldest completed jobs if more are kept than usual. kept: the number of jobs in `results`.
  local function trim(base, kept, call)
    if kept + redis.call('ZCARD', base .. ':completed') - count <= finish.SLACK then return end
    call.left, call.seen.newest, call.seen.kept = finish.most_removed(1), call.number, nil
    finish.trim_results(base, '', 1, call)
  end

  -- End a run that had already lost its lease, or whose entry was not pending for another reason. Return the refused
  -- run, flat.
  local function complete_lost(base, args, call)
    local group = {started = args[STARTED], policy = '', results = PAYLOAD - 1, kept = count, newest = call.number,
      valid = false}
    local done, answer = {}, {}
    completing.one_by_one(base, args, group, ENTRY, ENTRY, 1, done, answer, call, outcomes.apply.c)
    completing.finish(base, group, call)
    finish.store(base, done, call, {completed = call.ran})
    return answer
  end

  -- Return the state of the call, see queue_flags.call; nil if the run is not usual. started: when it began.
  function one_run.usual(base, id, started, seen)
    local now, past = clock.now()
    local number = tonumber(id)
    if not is_usual(base, number, started, now, seen) then return nil end
    return {now = now, past = past, seen = seen, lines = {}, number = number}
  end

  -- End the run. Return the refused run, flat.
  function one_run.complete(base, args, call)
    local raw, started, kept = args[ENTRY], args[STARTED], call.seen.kept + 1
    local id = plain.id_of(raw)
    if redis.call('XACK', base .. ':fifo', GROUP, raw) == 0 then return complete_lost(base, args, call) end
    call.lines.completed = {'completed', id}
    store(base, id, args[PAYLOAD], started, call)
    trim(base, kept, call)
    metrics.count(base, 'completed', 1, call.ran, call.now)
    return {}
  end
end

-- Claim up to `slots` jobs, which are plain, see one_run.usual. Return them as a settle call returns them, and true if
-- the caller should call again. The next call also creates a missing group.
local function take(base, consumer, slots, call)
  local out, most = {n = 0, tokens = {}}, math.min(claim.usual_step(MOST_CLAIMED), slots)
  local rows, is_missing = push.read_new(base, consumer, most)
  if not rows then return out, is_missing end
  claimed_rows.put_plain_rows(out, rows, call)
  return out, #rows == most and most < slots
end

-- Return the state of a settleAndClaim call that this file can execute, otherwise nil. unbroken: true if the server
-- knows the previous call of the worker; reply: the stored reply to that call.
function one_run.begin(base, args, unbroken, reply)
  local ran, slots, lock = duration_of(args), number_of(args[4]), number_of(args[5])
  if not (unbroken and ran and slots and slots > 0 and lock) then return nil end
  if args[6] ~= 'pg' and push.has_pushed(reply) then return nil end
  local seen = one_run.flags_of(base, redis.call('HMGET', base .. ':meta2', 'paused', 'keep_completed', 'incarnation',
    'features', 'horizon', 'regrouped', 'shortest_lease', 'special'))
  if not seen then return nil end
  incarnation.check(args[8], seen.incarnation)
  local call = one_run.usual(base, plain.id_of(args[ENTRY]), tonumber(args[STARTED]), seen)
  if call then call.ran, call.slots, call.lock, call.shortest = ran, slots, lock, lock end
  return call
end

local last_lock, packed_lock

-- Return the reply to be stored, as cmsgpack packs it, for a call that has refused no run, has claimed no job, and need
-- not be followed by a call at a due time.
local function packed_idle(args, call)
  if call.lock ~= last_lock then last_lock, packed_lock = call.lock, cmsgpack.pack(call.lock) end
  return '\152\144\144\0\1' .. packed_lock .. '\194' .. packed_number(call.now)
    .. (ACCEPTS[args[6]] and '\195' or '\194')
end

-- Execute the call. Return the reply.
function one_run.settle(base, args, call)
  local refused, consumer, slots, due = one_run.complete(base, args, call), args[3], call.slots, call.now
  local jobs, more = take(base, consumer, slots, call)
  if more then
    redis.call('ZREM', base .. ':idle', consumer)
  elseif jobs.n < slots then
    due = wakeup.register(base, consumer, slots - jobs.n, call)
  else
    due = 0
  end
  if jobs.n > 0 then push.note_lease(base, call.shortest, call) end
  events.write(base, call)
  local is_idle = jobs.n == 0 and due == 0 and not refused[1]
  request.remember(base, args[1], args[2], not is_idle and {refused, jobs.tokens, due, 1, call.lock, false, call.now,
    ACCEPTS[args[6]]}, request.WEEK_MS, is_idle and packed_idle(args, call))
  -- The server looks up seven names in each table of a reply, so an empty one is left out.
  return {call.now, refused[1] and refused or '', jobs.n > 0 and jobs or '', due, -1, call.notified and 4 or 0,
    call.past or 0, 1, call.now}
end
