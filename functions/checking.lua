-- checking: verifies the integrity of the stored data, in bounded steps and without a write.
--   checkPlaces   structure cursor count -> { next cursor | '', flat { invariant, id, text } }
--     Every member of the structure has a record whose location names this structure. structure: returned, scheduled,
--     completed, failed, lifo, prioritized, keyed, parents, suspended, fifo, runs.
--   checkKey      key cursor -> { next cursor | '', flat { invariant, subject, text } }
--     The zset and the set of one key agree with the records. If the key is not in `key_lines`, it is in `ready` or
--     `sleeping` exactly if it should be. checkQueue checks the other keys.
--   checkRecords  id… -> { number of records looked at, flat { invariant, id, text } }
--     Every record is in exactly the structure that its location names, and its fields fit its state.
--   checkJournals id… -> flat { invariant, id, text }
--     A journal belongs to a job, has as many steps as counted, and expires exactly if its job has completed. At most
--     1,000 ids.
--   checkChunks   id… -> flat { invariant, id, text }
--     A stream of chunks is open, or the server will forget it. At most 1,000 ids.
--   checkMailboxes id… -> flat { invariant, id, text }
--     `signalled` names each of these mailboxes. At most 1,000 ids.
--   checkQueue    cursor -> { next cursor | '', flat { invariant, subject, text } }
--     Counts of running jobs, marks, jobs that are both completed and failed, and the lines of keys.
-- docs/internals/stored-data.md numbers the invariants. Each function sees one instant, so its findings are
-- exact. A call ends early when its budget is spent, and the caller continues from the returned cursor.

local checking = {}
local STATE_OF = {returned = 'waiting', lifo = 'waiting', prioritized = 'prioritized', keyed = 'key-waiting',
  scheduled = 'delayed', parents = 'waiting-children', suspended = 'suspended', completed = 'completed',
  failed = 'failed'}
local ENTRY_OF = {returned = 'r', lifo = 'i', parents = 'w', suspended = 's'}

local function found(report, invariant, id, text)
  report[#report + 1] = invariant
  report[#report + 1] = id
  report[#report + 1] = text
end

local STEP = 200
-- The number of fields of a hash that one step checks. A text of `key_lines` may have more than a hundred jobs.
local HASH_STEP, HASH_STEPS = 50, {compact = 20, key_lines = 4}

-- Return the state and the entry of a job with a record or of a compact job, nil if there is none with this id.
local function location_of(base, id)
  local state, entry = record.location(base, id)
  if state then return state, entry end
  return compact.location(base, id)
end

local function check_zset(base, structure, cursor, count, report)
  local call_budget = budget.new()
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local ids = redis.call('ZRANGE', base .. ':' .. structure, from, from + count - 1)
  for i, member in ipairs(ids) do
    if i > 1 and budget.is_spent(call_budget) then return digits(from + i - 1) end
    local id, named = locations.parts_of(structure, member)
    local state, entry = location_of(base, id)
    local expected = named or ENTRY_OF[structure] or entry
    if not state then
      found(report, 'I2', id, 'in ' .. structure .. ' but has no record')
    elseif state ~= STATE_OF[structure] or entry ~= expected then
      found(report, 'I3', id, 'in ' .. structure .. ' but its location is ' .. state .. ' ' .. entry)
    end
  end
  return #ids == count and digits(from + count) or ''
end

local function is_pending(stream, entry)
  local rows = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
  return not rows.err and rows[1] ~= nil
end

-- Check an entry of a plain job: it is undelivered, pending, or in `results`, and `recorded` names it exactly if it
-- has a record.
local function check_plain(base, raw, pending, delivered, report)
  local id = plain.id_of(raw)
  local kept = redis.call('HEXISTS', base .. ':results', id) == 1
  local recorded = redis.call('SISMEMBER', base .. ':recorded', raw) == 1
  if recorded ~= exists(base .. ':job:' .. id) then
    found(report, 'I16', id, recorded and 'in recorded but has no record' or 'a plain job with a record')
  end
  local waits = entries.before(delivered, raw)
  if (kept and 1 or 0) + (pending and 1 or 0) + (waits and 1 or 0) ~= 1 then
    found(report, 'I14', id, 'entry ' .. raw .. ' of fifo is ' .. (kept and 'completed ' or '')
      .. (pending and 'pending ' or '') .. (waits and 'undelivered ' or '') .. '(exactly one of them is right)')
  end
  return recorded
end

-- Check that an undelivered entry without a mark may be read by a worker. special: of entries.mark_special.
local function check_mark(raw, fields, special, report)
  local number = plain.id_of(raw)
  if tonumber(number) <= special then return end
  if fields[1] == '' or entries.is_special(fields[2], fields[3] or '') then
    found(report, 'I26', number, 'entry ' .. raw .. ' of fifo is above the number in special')
  end
end

local function check_entry(base, entry, delivered, report)
  local stream = base .. ':fifo'
  local id, _, location, fields = entries.find(stream, entry[1])
  local pending = is_pending(stream, entry[1])
  local expected = pending and 'active' or 'waiting'
  if fields and fields[1] ~= '' and not check_plain(base, entry[1], pending, delivered, report) then return end
  local state, at = location_of(base, id)
  if not state then
    found(report, 'I2', id, 'fifo entry ' .. entry[1] .. ' has no record')
  elseif state ~= expected or at ~= location then
    found(report, 'I3', id,
      'fifo entry ' .. entry[1] .. ' is ' .. expected .. ' but its location is ' .. state .. ' ' .. at)
  end
end

local function check_fifo(base, cursor, count, report)
  local stream, call_budget = base .. ':fifo', budget.new()
  local delivered = entries.last_delivered(stream)
  local special = tonumber(redis.call('HGET', base .. ':meta2', 'special') or 0)
  local from, n, last = cursor == '' and '-' or '(' .. cursor, 0, nil
  while n < count do
    local wanted = math.min(count - n, 8)
    local rows = redis.call('XRANGE', stream, from, '+', 'COUNT', wanted)
    for _, entry in ipairs(rows) do
      if last and budget.is_spent(call_budget) then return last end
      check_entry(base, entry, delivered, report)
      if entries.before(delivered, entry[1]) then check_mark(entry[1], entry[2], special, report) end
      call_budget.bytes, last, n = call_budget.bytes + #entry[2][2], entry[1], n + 1
    end
    if #rows < wanted then return '' end
    from = '(' .. last
  end
  return last
end

local function is_there(base, id, state, entry)
  if state == 'completed' or state == 'failed' then return redis.call('ZSCORE', base .. ':' .. state, id) end
  if state == 'delayed' then return redis.call('ZSCORE', base .. ':scheduled', entry .. id) end
  if state == 'key-waiting' then
    local route = keyed.route_of(base, id)
    return route and redis.call('ZSCORE', base .. ':keyed', id)
      and key_lines.has(base, route.key, route.sequence .. entry .. id)
  end
  if state == 'waiting-children' then return redis.call('ZSCORE', base .. ':parents', id) end
  if state == 'suspended' then return redis.call('ZSCORE', base .. ':suspended', id) end
  if entry == 'r' then return redis.call('ZSCORE', base .. ':returned', id) end
  if entry == 'i' then return redis.call('ZSCORE', base .. ':lifo', id) end
  if state == 'prioritized' then return redis.call('ZSCORE', base .. ':prioritized', entry .. id) end
  if string.sub(entry, 1, 1) ~= 'p' then
    local key = string.sub(entry, 1, 1) == 'k' and runs.key_of(base, id, entry)
    if key and redis.call('HEXISTS', base .. ':running', key) == 0 then return false end
    return runs.row(base, id, entry) ~= nil and state == 'active'
  end
  local fifo, raw = base .. ':fifo', string.sub(entry, 2)
  local holder, _, full = entries.find(fifo, raw)
  return holder == id and full == entry and is_pending(fifo, raw) == (state == 'active')
end

-- Return true if there is a job with this id, in the structure that its record names.
function checking.is_there(base, id)
  local state, entry = record.location(base, id)
  if not state then return plain.find(base, id) ~= nil or compact.has(base, id) end
  return is_there(base, id, state, entry) or false
end

-- Check runs from a rank on: each has a job that runs under its token, and a worker.
local function check_runs(base, cursor, count, report)
  local from, call_budget = cursor == '' and 0 or integer('cursor', cursor), budget.new()
  local rows = runs.rows_from(base, from, count, clock.now())
  for i, row in ipairs(rows) do
    if i > 1 and budget.is_spent(call_budget) then return digits(from + i - 1) end
    local token, id = row[1], row[5]
    local state, at = location_of(base, id)
    if row[2] == '' then found(report, 'I4', id, 'its run ' .. token .. ' belongs to no worker') end
    if not state then
      found(report, 'I2', id, 'run ' .. token .. ' has no record')
    elseif state ~= 'active' or at ~= token then
      found(report, 'I3', id, 'run ' .. token .. ' is active but its location is ' .. state .. ' ' .. at)
    end
  end
  return #rows == count and digits(from + count) or ''
end

local function check_record(base, id, report)
  local key = base .. ':job:' .. id
  local fields = redis.call('HMGET', key, 'place', 'name', 'ended', 'claim', 'after')
  if not fields[1] then
    if exists(key) then found(report, 'I2', id, 'a record without a location: no add made it') end
    return
  end
  local state, entry = record.location(base, id)
  if not fields[2] or redis.call('HEXISTS', key, 'data') == 0 then
    found(report, 'I2', id, 'a record without name or data')
  end
  if not is_there(base, id, state, entry) then
    found(report, 'I1', id, 'its location is ' .. state .. ' ' .. entry .. ' but it is not there')
  end
  local raw = plain.find(base, id)
  if raw and redis.call('SISMEMBER', base .. ':recorded', raw) == 0 then
    found(report, 'I16', id, 'a plain job with a record')
  end
  local over = state == 'completed' or state == 'failed'
  if over and not fields[3] then found(report, 'I5', id, state .. ' without a time of ending') end
  if state == 'active' and not fields[4] then found(report, 'I4', id, 'active without a claim') end
  if fields[5] and state == 'delayed' and not successors.is_expected(base, id, entry) then
    found(report, 'I9', id, 'waits for the end of another job, and no deduplication id names it')
  end
end

register('checkPlaces', function(base, args)
  local structure, report = args[1], {}
  local cursor, count = args[2], integer('count', args[3])
  if structure == 'fifo' then return {check_fifo(base, cursor, count, report), report} end
  if structure == 'runs' then return {check_runs(base, cursor, count, report), report} end
  return {check_zset(base, structure, cursor, count, report), report}
end, {'no-writes'})

register('checkRecords', function(base, args)
  local report, call_budget = {}, budget.new()
  for i, id in ipairs(args) do
    if i > 1 and budget.is_spent(call_budget) then return {i - 1, report} end
    check_record(base, id, report)
  end
  return {#args, report}
end, {'no-writes'})

-- Check that these members of a line or a set of a key are jobs of the key in this state.
local function check_members(base, key, members, state, report)
  for _, id in ipairs(members) do
    local route = keyed.route_of(base, id)
    local now = location_of(base, id)
    if not route or route.key ~= key then
      found(report, 'I6', id, 'in a line of key ' .. key .. ' but not a job of it')
    elseif now ~= state then
      found(report, 'I6', id, 'in a line of key ' .. key .. ' as ' .. state .. ' but its location is ' .. now)
    end
  end
end

-- Check that a key is in `ready` or in `sleeping` exactly if a job of it waits and its concurrency permits one more
-- run.
local function check_ready(base, key, report)
  local waiting = key_lines.length(base, key)
  local call = {now = clock.now(), seen = queue_flags.at(base)}
  local running = keyed.running_counts(base, {key}, call)[key]
  local left = keyed.room(base, key, keyed.limits_of(base, key, call), running, call)
  local ready = redis.call('ZSCORE', base .. ':ready', key)
  local sleeping = redis.call('ZSCORE', base .. ':sleeping', key)
  local expected, is_indexed = waiting > 0 and left > 0, (ready or sleeping) and true or false
  if expected ~= is_indexed then
    found(report, 'I7', key, waiting .. ' jobs wait and ' .. left .. ' more may run, but the key is '
      .. (ready and 'ready' or sleeping and 'sleeping' or 'neither ready nor sleeping'))
  end
  if ready and sleeping then found(report, 'I7', key, 'both ready and sleeping') end
end

register('checkKey', function(base, args)
  local key, report = args[1], {}
  local part, at = string.match(args[2], '^(%a) (%d+)$')
  if part ~= 'r' then
    local from, ids = tonumber(at or 0), {}
    local members = line_rests.range(base, key, line_rests.kind(base, key), from, STEP)
    for i, member in ipairs(members) do ids[i] = string.sub(member, 18) end
    check_members(base, key, ids, 'key-waiting', report)
    if from == 0 and members[1] and key_lines.is_lost(base, key) then
      found(report, 'I28', key, 'its line has no text, so no claim finds its jobs')
    end
    return {#members == STEP and 'w ' .. digits(from + STEP) or 'r 0', report}
  end
  local step = redis.call('SSCAN', base .. ':keyrest:' .. key, at, 'COUNT', STEP)
  check_members(base, key, step[2], 'delayed', report)
  if step[1] ~= '0' then return {'r ' .. step[1], report} end
  -- checkQueue checks the keys in `key_lines`.
  if redis.call('HEXISTS', base .. ':key_lines', key) == 0 then check_ready(base, key, report) end
  return {'', report}
end, {'no-writes'})

-- Check that the counted runs of each key equal its runs and its stopping runs, if they are few enough to read.
local function check_running(base, report)
  local actual = stopping.by_key(base)
  if not actual or redis.call('ZCARD', base .. ':runs') > 1000 or redis.call('HLEN', base .. ':running') > 1000 then
    return
  end
  local _, keys = runs.jobs_from(base, '0', '-1')
  for i = 1, #keys do
    local key = keys[i]
    if key then actual[key] = (actual[key] or 0) + 1 end
  end
  local counted = redis.call('HGETALL', base .. ':running')
  for i = 1, #counted, 2 do
    local key, count = counted[i], tonumber(counted[i + 1])
    if count ~= actual[key] then
      found(report, 'I6', key, count .. ' runs are counted and ' .. (actual[key] or 0) .. ' are active or stopping')
    end
    actual[key] = nil
  end
  for key, count in pairs(actual) do
    found(report, 'I6', key, count .. ' runs are active or stopping and none is counted')
  end
end

-- Check that the counter is not below the last number of `fifo`, and that no kept outcome is below the horizon.
local function check_numbers(base, report)
  local last = redis.call('XREVRANGE', base .. ':fifo', '+', '-', 'COUNT', 1)[1]
  local number = last and plain.id_of(last[1])
  if number and tonumber(number) > tonumber(redis.call('GET', base .. ':id') or 0) then
    found(report, 'I17', number, 'a number above the counter of generated ids')
  end
  local horizon = tonumber(redis.call('HGET', base .. ':meta2', 'horizon') or nil) or 1    -- it may be damaged by hand
  for _, n in ipairs({horizon - 1, horizon - 2}) do
    if redis.call('HEXISTS', base .. ':results', digits(n)) == 1 then
      found(report, 'I15', digits(n), 'an outcome below the horizon ' .. digits(horizon))
    end
  end
end

-- Check that marks outside of the records belong to jobs that still need them. Each function checks one id.
local mark = {}

local function has_job(name)
  return function(base, id, report)
    if not plain.location(base, id) then found(report, 'I9', id, 'in ' .. name .. ' but there is no job') end
  end
end

mark.expiry, mark.held = has_job('expiry'), has_job('held')

function mark.moved(base, id, report)
  local state = record.location(base, id)
  if not state then return found(report, 'I9', id, 'in moved but has no record') end
  if state == 'completed' or state == 'failed' then found(report, 'I9', id, 'in moved but ' .. state) end
end

function mark.parents(base, id, report)
  local fault = children.fault_of_parent(base, id)
  if fault then found(report, 'I20', id, fault) end
end

function mark.suspended(base, id, report)
  local fault = signals.fault_of_suspended(base, id)
  if fault then found(report, 'I22', id, fault) end
end

function mark.completed(base, id, report)
  if redis.call('ZSCORE', base .. ':failed', id) then found(report, 'I1', id, 'both completed and failed') end
end

function mark.revoking(base, id, report)
  local state = record.location(base, id)
  if not state then found(report, 'I9', id, 'in revoking but has no record') end
  if state ~= 'active' then found(report, 'I9', id, 'in revoking but not active') end
end

-- Check the fields of hashes: each belongs to a job that has it. Each function checks one field.
local field, ANY = {}, {compact = true}

function field.results(base, id, _, report)
  if not plain.find(base, id) then found(report, 'I14', id, 'an outcome without an entry in fifo') end
end

function field.compact(base, id, _, report)
  if exists(base .. ':job:' .. id) then found(report, 'I27', id, 'a compact job with a record') end
  local state, entry = compact.location(base, id)
  if not is_there(base, id, state, entry) then
    found(report, 'I27', id, 'a compact job whose location is ' .. state .. ' ' .. entry .. ' but it is not there')
  end
end

function field.compact_runs(base, id, _, report)
  if not compact.has(base, id) then found(report, 'I27', id, 'a run without its compact job') end
end

function field.key_lines(base, key, text, report)
  local ids, others = key_lines.ids_in(text), {}
  local texts, started = compact.lines(base, ids, ANY), compact.runs(base, ids, ANY)
  for i, id in ipairs(ids) do
    -- Most jobs are compact jobs. This needs no other command for them.
    local waits = texts[i] and not started[i]
    if not waits or keyed.parse(compact.head_of(texts[i])).key ~= key then others[#others + 1] = id end
  end
  check_members(base, key, others, 'key-waiting', report)
  for _, fault in ipairs(key_lines.faults_of(base, key, text)) do found(report, 'I28', key, fault) end
  check_ready(base, key, report)
end

function field.flowed(base, id, value, report)
  local fault = children.fault_of_mark(base, id, value)
  if fault then found(report, 'I19', id, fault) end
end

function field.streamed(base, id, _, report)
  local state = plain.location(base, id)
  if not state or locations.is_final(state) then
    found(report, 'I18', id, 'its stream is open but ' .. (state and 'it is ' .. state or 'there is no job'))
  end
end

function field.signalled(base, name, value, report)
  local fault = signals.fault_of_field(base, name, value)
  if fault then found(report, 'I23', string.sub(name, 2), fault) end
end

function field.stepped(base, id, _, report)
  if not plain.location(base, id) then found(report, 'I21', id, 'in stepped but there is no job') end
end

-- Take one step through a hash. Return where to continue, nil at the end.
local function check_hash(base, name, at, report)
  local step = redis.call('HSCAN', base .. ':' .. name, at, 'COUNT', HASH_STEPS[name] or HASH_STEP)
  for i = 1, #step[2], 2 do field[name](base, step[2][i], step[2][i + 1], report) end
  return step[1] ~= '0' and step[1] or nil
end

register('checkMailboxes', function(base, args)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 mailboxes are checked in a call, found ' .. #args) end
  local report = {}
  for _, id in ipairs(args) do
    if redis.call('HEXISTS', base .. ':signalled', 'm' .. id) == 0 and exists(base .. ':signals:' .. id) then
      found(report, 'I23', id, 'a mailbox that signalled does not name')
    end
  end
  return report
end, {'no-writes'})

register('checkChunks', function(base, args)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 streams are checked in a call, found ' .. #args) end
  local report = {}
  for _, id in ipairs(args) do
    local ttl, is_open = redis.call('PTTL', base .. ':chunks:' .. id), chunks.open_of(base, id)
    if ttl == -1 and not is_open then found(report, 'I18', id, 'chunks that nothing will remove') end
    if ttl >= 0 and is_open then found(report, 'I18', id, 'the chunks of a job that has not ended expire') end
  end
  return report
end, {'no-writes'})

register('checkJournals', function(base, args)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 journals are checked in a call, found ' .. #args) end
  local report = {}
  for _, id in ipairs(args) do
    local key, counted = base .. ':steps:' .. id, journals.size_of(base, id)
    local count, expires = redis.call('HLEN', key), redis.call('PTTL', key) >= 0
    local state = plain.location(base, id)
    if not counted then
      found(report, 'I21', id, 'a journal that stepped does not name')
    elseif count > 0 and count ~= counted then
      found(report, 'I21', id, 'a journal of ' .. count .. ' steps of which ' .. counted .. ' are counted')
    elseif count > 0 and state and expires ~= (state == 'completed') then
      found(report, 'I21', id, 'the job is ' .. state .. ' but its journal ' .. (expires and 'expires' or 'stays'))
    end
  end
  return report
end, {'no-writes'})

-- Take one step through the groups of failures: `failing` and `failure_groups` have the same members.
local function check_failing(base, at, report)
  local from = tonumber(at)
  local found_here = redis.call('ZRANGE', base .. ':failing', from, from + STEP - 1)
  for _, fingerprint in ipairs(found_here) do
    local fault = failure_groups.fault_of(base, fingerprint)
    if fault then found(report, 'I25', fingerprint, fault) end
  end
  if from == 0 and redis.call('HLEN', base .. ':failure_groups') ~= redis.call('ZCARD', base .. ':failing') then
    found(report, 'I25', 'failure_groups', 'not as many groups as members of failing')
  end
  return #found_here == STEP and digits(from + STEP) or nil
end

-- Check that each field of `renewed` has its run, if there are few enough runs to read.
local function check_renewed(base, report)
  local key, count = base .. ':renewed', redis.call('ZCARD', base .. ':runs')
  local fields = redis.call('HLEN', key)
  if fields > count then found(report, 'I4', 'renewed', 'more fields than there are runs') end
  if count > 1000 or fields > 1000 then return end
  local held = runs.tokens(base)
  for _, token in ipairs(redis.call('HKEYS', key)) do
    if not held[token] then found(report, 'I4', token, 'in renewed but there is no such run') end
  end
end

-- Take one step through a hash, a zset or, for `revoking`, a set. Return where to continue, nil at the end.
local function check_marks(base, name, at, report)
  local key, call_budget = base .. ':' .. name, budget.new()
  if field[name] then return check_hash(base, name, at, report) end
  if name == 'failing' then return check_failing(base, at, report) end
  if name == 'renewed' then return check_renewed(base, report) end
  if name == 'revoking' then
    local step = redis.call('SSCAN', key, at, 'COUNT', STEP)
    for _, id in ipairs(step[2]) do mark.revoking(base, id, report) end
    return step[1] ~= '0' and step[1] or nil
  end
  local from = tonumber(at)
  local ids = redis.call('ZRANGE', key, from, from + STEP - 1)
  for i, id in ipairs(ids) do
    if i > 1 and budget.is_spent(call_budget) then return digits(from + i - 1) end
    mark[name](base, id, report)
  end
  return #ids == STEP and digits(from + STEP) or nil
end

local MARKS = {'expiry', 'held', 'revoking', 'moved', 'completed', 'results', 'streamed', 'flowed', 'parents',
  'suspended', 'signalled', 'stepped', 'failing', 'compact', 'compact_runs', 'key_lines', 'renewed'}

register('checkQueue', function(base, args)
  local report = {}
  local number, at = string.match(args[1], '^(%d+) (%d+)$')
  if not number then
    check_running(base, report)
    check_numbers(base, report)
    for _, name in ipairs(queue_flags.missing(base)) do
      found(report, 'I13', name, 'exists without its flag in meta2, so claims may not see it until the next sweep')
    end
    return {'1 0', report}
  end
  number = tonumber(number)
  local rest = check_marks(base, MARKS[number], at, report)
  if rest then return {number .. ' ' .. rest, report} end
  return {MARKS[number + 1] and number + 1 .. ' 0' or '', report}
end, {'no-writes'})
