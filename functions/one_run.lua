-- one_run: settles the run of one plain job, and claims the next jobs or lets the worker wait. A worker makes this call
-- if it runs one job at a time, or gets one at a time, see one_plain.lua. It has the same effect as the general path of
-- settle.lua. That path builds tables and functions for any number of runs and jobs of any kind, which is half of
-- the instructions of a call with one run.

local one_run = {}
local SMALL = entries.SMALL
-- The number of arguments of a call with one group of one run and no other run, and the positions of some of them.
local ARGUMENTS, RAN, STARTED, ENTRY, PAYLOAD = 16, 7, 10, 13, 15
-- The same for the short form.
local SHORT, CALLER, SHORT_RAN, SHORT_STARTED, SHORT_ENTRY, SHORT_PAYLOAD = 7, 3, 4, 5, 6, 7
-- The flags of a call, and whether the worker accepts pushes. With "g" it has received the last one.
local ACCEPTS = {[''] = false, p = true, pg = true}
-- the structures that a queue may have here
local KNOWN = {'waiters', 'held', 'results'}
local MOST_CLAIMED = 8
local LONGEST = 1e12             -- ms
-- Every TURN-th job that ends in a minute, and the first one, releases held jobs and applies the retention for the
-- others, so up to TURN - 1 more jobs than at a turn may remain.
local TURN = 8

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
      shortest_lease = number_of(meta[7]), special = number_of(meta[8]) or 0, waiters = known.waiters,
      held = known.held, results = known.results}
  end
end

-- Return true if a settleAndClaim call has one run that this file may settle.
local function has_one(args)
  return #args == ARGUMENTS and args[9] == '1' and args[11] == '' and args[12] == '1' and args[14] == '1'
    and args[16] == '0'
end

local caller_of

do
  local MOST = 64
  local callers, n_callers = {}, 0

  -- Return what a call of the short form says of its caller: { slots, lock, flags, incarnation, accepts }. Most calls
  -- of a worker have the same text.
  function caller_of(text)
    local known = callers[text]
    if known then return known end
    local slots, lock, flags, identity = string.match(text, '^(%d+) (%d+) (%l*) (.*)$')
    if not slots then fail('ARGUMENT', 'not the caller of a short settleAndClaim call: ' .. text) end
    if n_callers == MOST then callers, n_callers = {}, 0 end
    known = {slots = slots, lock = lock, flags = flags, incarnation = identity, accepts = ACCEPTS[flags]}
    callers[text], n_callers = known, n_callers + 1
    return known
  end
end

-- Return true if a settleAndClaim call has the short form.
function one_run.is_short(args)
  return #args == SHORT
end

-- Return the arguments of a call of the short form in the long form. caller: of caller_of.
local function in_long_form(args, caller)
  return {args[1], args[2], args[1], caller.slots, caller.lock, caller.flags, args[SHORT_RAN] .. ' 0',
    caller.incarnation, '1', args[SHORT_STARTED], '', '1', args[SHORT_ENTRY], '1', args[SHORT_PAYLOAD], '0'}
end

-- The same, also for other files.
function one_run.in_long_form(args)
  return in_long_form(args, caller_of(args[CALLER]))
end

do
  local count, age

  -- Return true if the outcome of a job goes into `results`, and the retention of the queue keeps it there; and if all
  -- entries that were added after the job are small plain jobs (`special` in entries.lua).
  local function is_usual(base, number, started, now, seen)
    if not count then count, age = finish.kept_by('') end
    if not number or number < seen.special or now - started > age * completing.LONG_RUN then return false end
    return not results.is_late(base, number, number, count, seen)
  end

  -- Hold the record of the job for a client that was notified.
  local function hold(base, id, call)
    if call.is_turn or not call.seen.held then
      finish.await_receipts(base, {id}, call.now, call.seen)
      finish.release_ended(base, TURN, call)
    else
      finish.hold(base, id, call)
    end
  end

  -- Store the outcome of the job and notify the clients that wait for it.
  local function store(base, id, call)
    local seen, payload = call.seen, call.payload
    local key = queue_flags.create(base, 'results', seen)
    redis.call('HSET', key, id, digits(call.now) .. ' ' .. call.started .. ' ' .. payload)
    local channels = seen.waiters and redis.call('HGET', keys_of(base).waiters, id)
    if not channels then return end
    finish.answer(base, channels, 'completed', id, payload)
    call.notified = true
    hold(base, id, call)
  end

  -- Remove the oldest completed jobs if more are kept than usual.
  local function trim(base, call)
    local seen, slack = call.seen, finish.SLACK + 1 - TURN
    seen.kept = nil
    if results.count(base, seen) + redis.call('ZCARD', base .. ':completed') - count <= slack then return end
    call.left, seen.newest, seen.keep = finish.most_removed(1), call.number, {completed = '', failed = ''}
    finish.trim_results(base, '', 1, call, slack)
  end

  -- End a run that had already lost its lease, or whose entry was not pending for another reason. Return the refused
  -- run, flat.
  local function complete_lost(base, args, call, consumer)
    if one_run.is_short(args) then args = in_long_form(args, call.caller) end
    local group = {started = args[STARTED], policy = '', results = PAYLOAD - 1, kept = count, newest = call.number,
      valid = false}
    local done, answer = {}, {}
    call.lines, call.seen.keep, call.consumer = {}, {completed = '', failed = ''}, consumer
    completing.one_by_one(base, args, group, ENTRY, ENTRY, 1, done, answer, call, outcomes.apply.c)
    completing.finish(base, group, call)
    finish.store(base, done, call, {completed = call.ran})
    return answer
  end

  -- Return true if the run is usual.
  function one_run.is_usual(base, call)
    return is_usual(base, call.number, tonumber(call.started), call.now, call.seen)
  end

  -- End the run. Return the refused run, flat; nil if it is not refused.
  function one_run.complete(base, args, call, consumer)
    local id = call.id
    if redis.call('XACK', keys_of(base).fifo, GROUP, call.raw) == 0 then
      return complete_lost(base, args, call, consumer)
    end
    local nth = metrics.count(base, 'completed', 1, call.ran, call.now)
    call.is_turn = nth % TURN == 0 or nth == 1
    store(base, id, call)
    if call.is_turn then trim(base, call) end
    return nil
  end
end

local NOTHING = {n = 0, tokens = {}}

-- Claim up to `slots` jobs, which are plain, see one_run.is_usual. Return them as a settle call returns them, and true
-- if the caller should call again. The next call also creates a missing group.
local function take(base, consumer, slots, call)
  local most = math.min(claim.usual_step(MOST_CLAIMED), slots)
  local rows, is_missing = push.read_new(base, consumer, most)
  if not rows then return NOTHING, is_missing end
  local out = {n = 0, tokens = {}}
  call.lines = call.lines or {completed = {'completed', call.id}}
  claimed_rows.put_plain_rows(out, rows, call)
  return out, #rows == most and most < slots
end

-- Return the state of a call (see queue_flags.call) if this file can execute the call, otherwise nil.
--   reply, key  see one_run.begin
--   caller      what caller_of returns
--   the others  arguments of the call
-- The table has 14 fields, and the call adds at most two in the usual case. With more than 16 fields Lua would give it
-- twice the memory, and would copy all fields when the call adds one.
local function begun(base, reply, key, caller, consumer, ran, started, raw, payload)
  local slots, lock = number_of(caller.slots), number_of(caller.lock)
  ran = number_of(ran)
  if not (slots and slots > 0 and lock and ran and ran < LONGEST) or caller.accepts == nil or #payload > SMALL
    or not string.find(started, '^%d+$') or not string.find(raw, '^%d+%-%d+$') then return nil end
  if caller.flags ~= 'pg' and push.has_pushed(reply) then return nil end
  local seen = one_run.flags_of(base, redis.call('HMGET', keys_of(base).meta2, 'paused', 'keep_completed',
    'incarnation', 'features', 'horizon', 'regrouped', 'shortest_lease', 'special'))
  if not seen then return nil end
  incarnation.check(caller.incarnation, seen.incarnation)
  local now, past = clock.now()
  local id = plain.id_of(raw)
  local call = {now = now, past = past, seen = seen, id = id, number = tonumber(id), raw = raw, started = started,
    payload = payload, ran = ran, lock = lock, shortest = lock, reply = reply, key = key, caller = caller}
  if not one_run.is_usual(base, call) then return nil end
  return call, consumer, slots
end

-- Return the state, the consumer and the number of slots of a settleAndClaim call that this file can execute, otherwise
-- nil. unbroken, reply, key: of request.replay.
function one_run.begin(base, args, unbroken, reply, key)
  if not unbroken then return nil end
  if #args == SHORT then
    local caller = caller_of(args[CALLER])
    return begun(base, reply, key, caller, args[1], args[SHORT_RAN], args[SHORT_STARTED], args[SHORT_ENTRY],
      args[SHORT_PAYLOAD])
  end
  local ran = has_one(args) and string.match(args[RAN], '^(%d+) 0$')
  if not ran then return nil end
  local caller = {slots = args[4], lock = args[5], flags = args[6], incarnation = args[8], accepts = ACCEPTS[args[6]]}
  return begun(base, reply, key, caller, args[3], ran, args[STARTED], args[ENTRY], args[PAYLOAD])
end

local last_lock, packed_lock
local AFTER_EQUAL = 3            -- the bytes of a packed idle reply after the seventh one of its time

-- Return the text to be stored for a call that has refused no run, has claimed no job, and need not be followed by a
-- call at a due time: its number, and the reply as cmsgpack packs it.
local function idle_text(number, call)
  if call.lock ~= last_lock then last_lock, packed_lock = call.lock, cmsgpack.pack(call.lock) end
  local accepts = call.caller.accepts and '\195' or '\194'
  return number .. ' \152\144\144\0\1' .. packed_lock .. '\194' .. packed_number(call.now) .. accepts
end

-- Execute the call. consumer, slots: of one_run.begin. Return the reply.
function one_run.settle(base, args, call, consumer, slots)
  local refused, due = one_run.complete(base, args, call, consumer), call.now
  local jobs, more = take(base, consumer, slots, call)
  if more then
    redis.call('ZREM', base .. ':idle', consumer)
  elseif jobs.n < slots then
    -- The queue has no timer, because it has none of the structures with due times.
    due = 0
    redis.call('ZADD', keys_of(base).idle, digits(slots - jobs.n), consumer)
  else
    due = 0
  end
  if jobs.n > 0 then push.note_lease(base, call.shortest, call) end
  if call.lines then events.write(base, call) else events.append(base, 'completed' .. SEP .. call.id, 1, call) end
  if jobs.n == 0 and due == 0 and not refused then
    local number = args[2]
    local text = idle_text(number, call)
    local n_equal = #text - #number - 1 - AFTER_EQUAL
    request.remember_packed(call.key, number, text, n_equal, call.reply, request.LONG_WEEK_MS)
    if #args == SHORT then return (call.now * 1000 + (call.past or 0)) * (call.notified and -1 or 1) end
  else
    request.remember(base, args[1], args[2], {refused or {}, jobs.tokens, due, 1, call.lock, false, call.now,
      call.caller.accepts}, request.WEEK_MS)
  end
  -- The server looks up seven names in each table of a reply, so an empty one is left out.
  return {call.now, refused or '', jobs.n > 0 and jobs or '', due, -1, call.notified and 4 or 0, call.past or 0, 1,
    call.now}
end
