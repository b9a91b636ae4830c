-- job_history: the runs of a job, and the actions of operators on it.
--   getHistory   id -> { history | '', consumer, version }     the last two of a running job, otherwise ''
--   noteAction   channel number actor action note id… -> { number of ids that were looked at, number of jobs }
--                at most 200 ids; jobs that do not exist are passed over
--   setHistory   bytes -> "ok"      the size of the history that each job keeps, 0: none; at most MOST_BYTES
--   record  history  entries separated by RS, the oldest first. An entry has a letter and values, separated by SEP:
--             a run ms ms outcome consumer version group error     a run with its start and end
--             e ms what text              the server has ended the job
--             o ms actor action note      an operator
--   meta2   history  the size of a history in bytes, absent for the default
-- Only a job that fails, that runs again, or that an operator changes has the field. A run that completes is not noted:
-- it follows from the other fields of the job. After other runs, the claim has stored its worker in `runner`.

local job_history = {}
local DEFAULT_BYTES, MOST_BYTES = 8192, 65536
local LONGEST_TEXT, LONGEST_ERROR = 200, 300
local MOST_JOBS = 200

-- Return how many bytes a job keeps. It is read once in a call.
local function limit_of(base, call)
  if not call.history_bytes then
    call.history_bytes = tonumber(redis.call('HGET', base .. ':meta2', 'history') or DEFAULT_BYTES)
  end
  return call.history_bytes
end

-- Return a history with one more entry. The oldest entries leave when it is too long; the newest one stays.
local function extended(kept, entry, most)
  local text = kept and kept ~= '' and kept .. RS .. entry or entry
  while #text > most do
    local at = string.find(text, RS, #text - most, true)
    if not at then return entry end
    text = string.sub(text, at + 1)
  end
  return text
end

local function clean(text, most)
  return (string.gsub(string.sub(text, 1, most), '%c', ' '))
end

-- Return the history of a job after a run has ended, nil if the queue keeps none. kept, claim: the fields `history` and
-- `claim` of the record.
function job_history.after_run(base, kept, claim, outcome, runner, group, reason, call)
  local most = limit_of(base, call)
  if most == 0 then return nil end
  local number, started = string.match(claim or '', '^(%d+) (%d+)')
  local consumer, version = string.match(runner, '^(%S*) ?(.*)$')
  return extended(kept, table.concat({'a', number or '0', started or '0', digits(call.now), outcome, consumer, version,
    group, clean(reason, LONGEST_ERROR)}, SEP), most)
end

-- Note a run that did not fail and did not complete.
function job_history.note_run(base, id, outcome, reason, call)
  if limit_of(base, call) == 0 then return end
  local key = base .. ':job:' .. id
  local job = redis.call('HMGET', key, 'history', 'claim')
  local runner = failure_groups.runner_of(base, call)
  redis.call('HSET', key, 'history', job_history.after_run(base, job[1], job[2], outcome, runner, '', reason, call))
end

-- Note the lost lease of a run.
function job_history.note_stall(base, id, runner, group, call)
  local key = base .. ':job:' .. id
  local job = redis.call('HMGET', key, 'history', 'claim')
  local text = job_history.after_run(base, job[1], job[2], 'stalled', runner, group, '', call)
  if text then redis.call('HSET', key, 'history', text) end
end

local function append(base, id, entry, call)
  local key, most = base .. ':job:' .. id, limit_of(base, call)
  if most == 0 then return end
  redis.call('HSET', key, 'history', extended(redis.call('HGET', key, 'history'), entry, most))
end

-- Return the entry of an action of an operator.
function job_history.action(actor, action, text, call)
  return table.concat({'o', digits(call.now), clean(actor, LONGEST_TEXT), clean(action, LONGEST_TEXT),
    clean(text, LONGEST_TEXT)}, SEP)
end

-- Add the entry of an action to the history of a job that still has a record. Return how many bytes were read.
function job_history.note_action(base, id, entry, call)
  local key, most = base .. ':job:' .. id, limit_of(base, call)
  if most == 0 then return 0 end
  local found = redis.call('HMGET', key, 'place', 'history')
  if found[1] then redis.call('HSET', key, 'history', extended(found[2], entry, most)) end
  return #(found[2] or '')
end

-- Note that the server has ended a job.
function job_history.note_end(base, id, cause, reason, call)
  append(base, id, table.concat({'e', digits(call.now), cause, clean(reason, LONGEST_ERROR)}, SEP), call)
end

-- Note the last run of a completed job that starts anew, before its fields are removed.
function job_history.note_completed(base, id, call)
  local job = redis.call('HMGET', base .. ':job:' .. id, 'claim', 'ended', 'runner')
  local number, started = string.match(job[1] or '', '^(%d+) (%d+)')
  if not number or number == '0' then return end
  local consumer, version = string.match(job[3] or '', '^(%S*) ?(.*)$')
  append(base, id, table.concat({'a', number, started, job[2] or '0', 'completed', consumer or '', version or '', '',
    ''}, SEP), call)
end

register('getHistory', function(base, args)
  local id = args[1]
  local kept = redis.call('HGET', base .. ':job:' .. id, 'history') or ''
  local state, entry = plain.location(base, id)
  local consumer = state == 'active' and runs.consumer_of(base, id, entry) or ''
  return {kept, consumer, failure_groups.version_of(base, consumer, {})}
end, {'no-writes'})

-- Return true if a job exists. From then on it has a record. (plain.open may refuse a queue, which must not follow the
-- writes for the jobs before.)
local function has_record(base, id, seen)
  if record.location(base, id) then return true end
  local state, raw, fields, detail = plain.look(base, id)
  if not state then return compact.open(base, id) end
  plain.add_record(base, id, state, raw, fields, detail, seen)
  return state
end

request.register('noteAction', function(base, args)
  if #args > MOST_JOBS + 5 then fail('ARGUMENT', 'at most ' .. MOST_JOBS .. ' jobs a call, found ' .. #args - 5) end
  local call, call_budget, noted = queue_flags.call(base), budget.new(), 0
  local entry = job_history.action(args[3], args[4], args[5], call)
  for i = 6, #args do
    if i > 6 and budget.is_spent(call_budget) then return {i - 6, noted} end
    if has_record(base, args[i], call.seen) then
      append(base, args[i], entry, call)
      noted = noted + 1
    end
  end
  return {#args - 5, noted}
end)

register('setHistory', function(base, args)
  local bytes = integer('bytes', args[1])
  if bytes < 0 or bytes > MOST_BYTES then fail('ARGUMENT', 'a history has 0 to ' .. MOST_BYTES .. ' bytes') end
  redis.call('HSET', base .. ':meta2', 'history', digits(bytes))
  return 'ok'
end, {'allow-oom'})
