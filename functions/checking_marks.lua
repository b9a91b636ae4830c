-- checking_marks: verifies the lines and counts of keys, and all that a queue stores about a job outside of its record
-- and its location.
--   checkKey      key cursor -> { next cursor | '', flat { invariant, subject, text } }
--     The zset and the set of one key agree with the records. If the key is not in `key_lines`, it is in `ready` or
--     `sleeping` exactly if it should be. checkQueue checks the other keys.
--   checkJournals id… -> flat { invariant, id, text }
--     A journal belongs to a job, has as many steps as counted, and expires exactly if its job has completed. At most
--     1,000 ids.
--   checkChunks   id… -> flat { invariant, id, text }
--     A stream of chunks is open, or the server will forget it. At most 1,000 ids.
--   checkMailboxes id… -> flat { invariant, id, text }
--     `signalled` names each of these mailboxes. At most 1,000 ids.
--   checkQueue    cursor -> { next cursor | '', flat { invariant, subject, text } }
--     Counts of running jobs, marks, jobs that are both completed and failed, and the lines of keys.
-- As in checking.lua, each function sees one instant, and ends early when its budget is spent.

local found, location_of = checking.found, checking.location_of
local STEP = 200
-- The number of fields of a hash that one step checks. A text of `key_lines` may have more than a hundred jobs.
local HASH_STEP, HASH_STEPS = 50, {compact = 20, key_lines = 4}

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
  if not checking.is_in_place(base, id, state, entry) then
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
