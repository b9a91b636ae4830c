-- completing: ends runs of plain jobs that completed. Their worker sends them in groups, see settle.lua. The runs of a
-- group began at the same time and have one retention policy. Most of them are stored without a record, see
-- results.lua.
--
-- As for other runs, the acknowledgement is the fence. If it finds fewer pending entries than were named, `refusal`
-- looks at each job.

local completing = {}
local RECORDS_IN_A_STEP = 16
completing.LONG_RUN = 1 / 16     -- as a part of the age up to which outcomes are kept

-- Return the fields of the entry of a plain job that still ran when this call acknowledged it, otherwise nil. A call
-- that takes a lease away deletes the entry, or completes the job. So an entry that exists was pending, or it is
-- undelivered because the group was destroyed.
function completing.leased(base, raw, call)
  local found = redis.call('XRANGE', base .. ':fifo', raw, raw)[1]
  if not found or found[2][1] == '' then return nil end
  local id = plain.id_of(raw)
  if redis.call('HEXISTS', base .. ':results', id) == 1 then return nil end
  local lost = call.seen.regrouped and tonumber(id) <= call.seen.regrouped
  if not lost and entries.before(entries.last_delivered(base .. ':fifo'), raw) then return nil end
  return found[2]
end

-- The number of arguments of a run in the groups of other jobs, by the first letter of their tokens.
local WIDTHS = {l = 2, k = 3}

-- Return the first letter of the tokens of a group of other jobs, and when its runs began (nil if unknown).
-- Return nil for a group of plain jobs.
local function active_kind(started)
  if tonumber(started) then
    integer('started', started)
    return nil
  end
  local prefix, since = string.match(started, '^([lk])(%d*)$')
  if not prefix then fail('ARGUMENT', 'started must be a time, found ' .. started) end
  return prefix, since ~= '' and since or nil
end

-- Read the groups from args[at] on, see settle.lua. Return them, the position after them, and the number of their jobs.
-- A group of other jobs has a `prefix`, a `width` and, if the start of its runs is known, `since`.
function completing.parse(args, at, number)
  local groups, total = {}, 0
  for g = 1, number do
    local started, policy, count = args[at], args[at + 1], integer('count', args[at + 2])
    local prefix, since = active_kind(started)
    local width = WIDTHS[prefix or '']
    if policy ~= '' then finish.check_policy(policy) end
    local after = at + 3 + count * (width or 1)
    -- Earlier builds sent tokens.
    if width and not string.find(args[at + 3] or '', '%d[lk] ') then
      fail('ARGUMENT', 'a group must begin with members of `runs`')
    end
    local m = integer('number of results', args[after])
    if count < 1 or not (m == 1 or m == count) then fail('ARGUMENT', count .. ' runs with ' .. m .. ' results') end
    groups[g] = {started = started, policy = policy, first = at + 3, last = after - 1, results = after, many = m > 1,
      width = width, count = count, prefix = prefix, since = since}
    at, total = after + m + 1, total + count
  end
  return groups, at, total
end

local function payload_of(args, group, i)
  return args[group.results + (group.many and i - group.first + 1 or 1)]
end

-- Complete a job as a job with a record. Return why that is refused, or nil. complete: outcomes.apply.c.
local function complete_as_record(base, raw, group, payload, done, call, complete)
  local id, fifo = plain.id_of(raw), base .. ':fifo'
  local missing = not exists(base .. ':job:' .. id)
  if missing and redis.call('SISMEMBER', base .. ':recorded', raw) == 1 then
    entries.delete(fifo, {raw})
    return 'missing'
  elseif missing then
    local found = redis.call('XRANGE', fifo, raw, raw)[1]
    if not found then return 'missing' end     -- the entry was deleted by hand
    local fields = found[2]
    local lease = plain.own_lease(fields[3]) or call.lock
    plain.record_run(base, raw, fields, tonumber(group.started), lease, call.seen)
  end
  entries.delete(fifo, {raw})
  return complete(base, digits(call.now), call, done, id, 'p' .. raw, payload, group.policy)
end

-- Return the lowest and the highest number of the jobs at args[from] to args[to].
local function numbers_in(args, from, to)
  local oldest, newest = args[from], args[from]
  -- Texts of the same length have the order of their numbers, and comparing them needs no conversion.
  for i = from + 1, to do
    local raw = args[i]
    if #raw > #newest or #raw == #newest and raw > newest then
      newest = raw
    elseif #raw < #oldest or #raw == #oldest and raw < oldest then
      oldest = raw
    end
  end
  return tonumber(plain.id_of(oldest)) or 0, tonumber(plain.id_of(newest)) or 0
end

-- Return the reply channels of clients that wait for these jobs, by position in args; nil if no client waits.
local function channels_of(base, args, from, to, call)
  if not call.seen.waiters then return nil end
  local ids, found = {}, {}
  for i = from, to do ids[i - from + 1] = plain.id_of(args[i]) end
  for i, channels in ipairs(redis.call('HMGET', base .. ':waiters', unpack(ids))) do found[from + i - 1] = channels end
  return found
end

-- Read which of the jobs at args[from] to args[to] have records. Return the position of the last one of a step with
-- RECORDS_IN_A_STEP of these at most, and true if there are any.
local function end_of_records(base, args, group, from, to)
  local found, n = redis.call('SMISMEMBER', base .. ':recorded', unpack(args, from, to)), 0
  group.recorded = found
  for i = 1, #found do
    n = n + found[i]
    if n == RECORDS_IN_A_STEP then return from + i - 1, true end
  end
  return to, n > 0
end

-- Return where the next step of a group ends, which begins at args[from] and ends at args[to] at the latest. Return
-- true as well if jobs of the step have records or get them: such a job costs several times as much as one whose
-- outcome goes into `results`. Sets in group: recorded, 1 or 0 for each job of the step, if the queue has records.
function completing.step_end(base, args, group, from, to, call)
  local oldest, newest = numbers_in(args, from, to)
  local count, age, ttl = finish.kept_by(group.policy, call.seen)
  group.kept, group.ttl, group.newest = count, ttl, newest
  -- Retention removes outcomes in the order of the adds. A run that ended much later than its neighbours would keep
  -- their outcomes beyond their age.
  group.took_long = count ~= 0 and age >= 0 and call.now - group.started > age * completing.LONG_RUN
  local get_records = ttl or group.took_long or count ~= 0 and results.is_late(base, oldest, newest, count, call.seen)
  group.is_usual = not (get_records or count == 0)
  if call.seen.event_rules then to = event_content.step_end(base, oldest, from, to, call) end
  if get_records then to = math.min(to, from + RECORDS_IN_A_STEP - 1) end
  if not call.seen.recorded then return to, get_records end
  local last, have_records = end_of_records(base, args, group, from, to)
  return last, get_records or have_records
end

-- Return why a job does not complete; nil if its lease was valid. named: the entries of the group so far.
local function refusal(base, raw, named, call)
  local first = not named[raw]
  named[raw] = true
  if raw == '0-0' then return 'stale' end
  local id = plain.id_of(raw)
  local state, at = record.location(base, id)
  if state == 'active' and at == 'p' .. raw and first then return nil end
  if not state and first and completing.leased(base, raw, call) then return nil end
  return (state or plain.find(base, id)) and 'stale' or 'missing'
end

-- Replace the entries that another consumer owns with an id that no entry has.
local function disown(base, args, from, to)
  for i = from, to do
    local holder = runs.consumer_of(base, nil, 'p' .. args[i])
    if holder and holder ~= args[3] then args[i] = '0-0' end
  end
end

-- Notify the clients that wait for jobs of a step. waited: { id } with `channels` and `payloads` by position.
local function notify(base, waited, done, call)
  for i, id in ipairs(waited) do finish.answer(base, waited.channels[i], 'completed', id, waited.payloads[i]) end
  done.waited, call.notified = (done.waited or 0) + #waited, true
  finish.await_receipts(base, waited, call.now, call.seen)
end

-- Notify the clients that wait for the jobs at args[from] to args[to], whose outcomes are in `results`.
local function notify_of(base, args, group, from, to, done, call)
  local channels, waited, n = channels_of(base, args, from, to, call), {channels = {}, payloads = {}}, 0
  for i = from, to do
    if channels[i] then
      n = n + 1
      waited[n], waited.channels[n], waited.payloads[n] =
        string.sub(args[i], 1, plain.END_OF_ID), channels[i], payload_of(args, group, i)
    end
  end
  if n > 0 then notify(base, waited, done, call) end
end

-- Store the outcomes of these jobs, or delete their entries if the policy keeps no job. flat: { number value }; left:
-- their entries.
local function store(base, group, flat, left, valid, call)
  if call.seen.started then plain.forget_starts(base, left) end
  if group.kept == 0 then
    entries.delete_acknowledged(base .. ':fifo', left, not valid or call.seen.results)
  else
    results.store(base, flat, call.seen)
    group.stored = (group.stored or 0) + #left
  end
end

local function note_contents(base, args, group, from, to, call)
  for i = from, to do event_content.note_plain(base, args[i], payload_of(args, group, i), call) end
end

-- Complete the jobs at args[from] to args[to]. All of them held their leases, and their outcomes go into `results`.
local function complete_usual(base, args, group, from, to, done, call)
  local line, flat, n = events.line(call.lines, 'completed'), {}, 0
  local head, payloads, at = digits(call.now) .. ' ' .. group.started .. ' ', group.results - group.first + 1, #line
  local same = not group.many and head .. args[group.results + 1]
  for i = from, to do
    local id = string.sub(args[i], 1, plain.END_OF_ID)
    at, n = at + 1, n + 2
    line[at], flat[n - 1], flat[n] = id, id, same or head .. args[payloads + i]
  end
  local seen, count = call.seen, to - from + 1
  if seen.event_rules then note_contents(base, args, group, from, to, call) end
  if seen.started then plain.forget_starts(base, {unpack(args, from, to)}) end
  results.store(base, flat, seen)
  seen.newest = math.max(seen.newest or 0, group.newest)
  group.stored, done.plain = (group.stored or 0) + count, (done.plain or 0) + count
  if seen.waiters then notify_of(base, args, group, from, to, done, call) end
end

-- Complete the acknowledged jobs at args[from] to args[to] one by one, see completing.step. group.valid: true if all of
-- them held their leases.
function completing.one_by_one(base, args, group, from, to, position, done, answer, call, complete)
  local valid = group.valid
  local recorded, channels = group.recorded, channels_of(base, args, from, to, call)
  local waited = channels and {channels = {}, payloads = {}}
  local count, ttl, newest = group.kept, group.ttl, group.newest
  group.named = group.named or {}
  local head, line, flat, left, n = digits(call.now) .. ' ' .. group.started .. ' ', nil, {}, {}, 0
  for i = from, to do
    local raw, payload = args[i], payload_of(args, group, i)
    local why = not valid and entries.fenced and refusal(base, raw, group.named, call)
    if not why then
      local id = plain.id_of(raw)
      local is_late = count ~= 0 and results.is_late(base, tonumber(id), newest, count, call.seen)
      local listening = channels and channels[i]
      local has_record = recorded and recorded[i - from + 1] == 1
      if has_record or ttl or is_late or group.took_long or (listening and count == 0) then
        why = complete_as_record(base, raw, group, payload, done, call, complete)
      else
        line = line or events.line(call.lines, 'completed')
        line[#line + 1] = id
        if call.seen.event_rules then event_content.note_plain(base, raw, payload, call) end
        n = n + 1
        left[n] = raw
        if count ~= 0 then flat[2 * n - 1], flat[2 * n] = id, head .. payload end
        if listening then
          local k = #waited + 1
          waited[k], waited.channels[k], waited.payloads[k] = id, listening, payload
        end
      end
    end
    if why then
      if why == 'missing' then record.lost(base, plain.id_of(raw), call) end
      answer[#answer + 1], answer[#answer + 2] = position + i - from, why
      -- If the job was removed, this outcome proves that the run has ended.
      stopping.finish(base, args[3], {'p' .. raw}, call)
    end
  end
  done.plain = (done.plain or 0) + n
  if n > 0 then store(base, group, flat, left, valid, call) end
  if waited and waited[1] then notify(base, waited, done, call) end
end

-- Complete the jobs at args[from] to args[to] of a group, after step_end. position: the position of the first one among
-- the runs of the call. Refused runs are added to `answer`. complete: outcomes.apply.c.
function completing.step(base, args, group, from, to, position, done, answer, call, complete)
  if call.verify then disown(base, args, from, to) end
  group.valid = redis.call('XACK', base .. ':fifo', GROUP, unpack(args, from, to)) == to - from + 1
  if group.valid and group.is_usual and not call.seen.recorded then
    complete_usual(base, args, group, from, to, done, call)
  else
    completing.one_by_one(base, args, group, from, to, position, done, answer, call, complete)
  end
end

-- Apply the policy of a group, after its last step in this call.
function completing.finish(base, group, call)
  if group.stored then finish.trim_results(base, group.policy, group.stored, call) end
end
