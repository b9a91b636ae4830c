-- record: the hash of one job, and the job's location.
--   job:{id} hash
--     name, data, opts     written by `add` (opts only when not the default)
--     place                "<state> <entry>": the location of the job, see locations.lua. No other field repeats it.
--                          The entry of a running job is its lease token. A finished job keeps the entry of its last
--                          run.
--     route                how the job waits when it is ready, see routes.lua; absent for a plain job
--     claim                "<fencing token> <started ms> <lease ms> [<order>]" of the last claim; order: see
--                          returned.lua. A job that was added with a delay has "0 0 0" before its first claim. Other
--                          jobs have no such field before their first claim. A run writes only to a record with this
--                          field. If it is absent, a user or the end of the job wrote the fields below.
--     added                creation time, ms. Absent while the id of the first stream entry contains it, and for keyed
--                          jobs, whose route contains it.
--     failures, stalls     number of runs that failed; number of leases that expired
--     undelivered          number of claims that did not reach their worker, see stalled.lua
--     ended, result, reason, error, progress
--     revoked              why the job was revoked, if a reason was given
--     group                fingerprint of the last failure, see failure_groups.lua
--     runner               "<consumer> <version>" of the last run that failed, or that ran a job again
--     history              the runs of the job, and the actions of operators, see job_history.lua
--     cause, letter        why the job failed for good; the origin of a dead letter: see dead_letters.lua
--     dedup                the deduplication id that the job owns or owned, see dedup.lua
--     after                of a job that starts when another has ended: its due time then, see successors.lua
--     waits                of a suspended job: what it waits for, see signals.lua
--     warm                 of a suspended job: the worker that has its function in memory and the worker's version, see
--                          warm_runs.lua
--     adopted              the plan of the children that runs of the job have added, see plans.lua
--     drop                 the record is removed when the job leaves `held`, see finish.lua. "1": it stays only because
--                          a client may still read the result; "t": the job has its own time to live
--     streamed             "1": the job has or had chunks; "0": a client reads them, see chunks.lua
--     trimmed              the number of log lines that were trimmed
--     progress_at          the time of the last `progress` event, ms, if the rules of events have an interval
--   logs:{id} list   lines, each after its time and its run: SEP <ms> <run> SEP
-- Read hint: a waiting job's stream entry, or its member in a key's line, contains one character that names the fields
-- that a claim must read. "i": name and data. "o": options too. "h": all fields, of a job with a history. "c": the job
-- has no record if it is still a compact job, see compact.lua. Every field that a claim does not read saves server
-- time.
-- Only `add` creates a record. Every other write happens where the record is known to exist, or is undone (`undone` in
-- settle.lua).

local record = {}

function record.key(base, id)
  return base .. ':job:' .. id
end

-- Return state and entry, or nil if the job does not exist.
function record.location(base, id)
  local location = redis.call('HGET', base .. ':job:' .. id, 'place')
  if not location then return nil end
  local at = string.find(location, ' ', 1, true)
  return string.sub(location, 1, at - 1), string.sub(location, at + 1)
end

-- Return state and entry in a location that the caller has read, or nil without a location.
function record.parts_of(location)
  if location then return string.match(location, '^(%S+) (.*)$') end
end

-- Return true if the job was ever claimed.
function record.has_started(base, id)
  local last = redis.call('HGET', base .. ':job:' .. id, 'claim')
  return last and last ~= '0 0 0'
end

-- Return a log line in its stored form, with its time and the number of the run.
function record.timed_line(base, id, now, line)
  local run = string.match(redis.call('HGET', base .. ':job:' .. id, 'claim') or '', '^%d+') or '0'
  return SEP .. digits(now) .. ' ' .. run .. SEP .. line
end

-- Return a stored log line, and "<ms> <run>", '' for a line of an earlier version.
function record.line_of(stored)
  if string.sub(stored, 1, 1) ~= SEP then return stored, '' end
  local at = string.find(stored, SEP, 2, true)
  if not at then return stored, '' end
  return string.sub(stored, at + 1), string.sub(stored, 2, at - 1)
end

-- Store the creation time in the record, before the stream entry whose id contains it is deleted.
function record.keep_added(base, id, entry)
  if string.sub(entry, 1, 1) == 'p' then
    redis.call('HSETNX', base .. ':job:' .. id, 'added', string.match(entry, '%d+$'))
  end
end

local function unlink_all(prefix, ids)
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = prefix .. id end
  in_chunks('UNLINK', nil, nil, keys)
end

-- Remove records, logs and journals. The caller has removed the jobs from their locations. seen: the table of
-- queue_flags.at, if the caller has it.
function record.unlink(base, ids, seen)
  if #ids == 0 then return end
  -- Compact jobs have neither a record nor a log. They cost no other command if all of these jobs are compact ones.
  if seen and seen.compact and record.remove_compact(base, ids) == #ids then return end
  unlink_all(base .. ':job:', ids)
  local logs = seen and seen.logs
  local is_known = logs ~= nil     -- confirmReplies reads only a few flags
  if not is_known then logs = redis.call('HEXISTS', base .. ':meta2', 'logs') == 1 end
  if logs then unlink_all(base .. ':logs:', ids) end
  if logs and (not is_known or seen.stepped) then journals.remove(base, ids) end
end

-- Remove the marks that features keep outside of the record. A feature that is not in use costs nothing here.
function record.forget_marks(base, ids, call)
  local seen = call.seen
  if seen.expiry then in_chunks('ZREM', base .. ':expiry', nil, ids) end
  if seen.revoking then in_chunks('SREM', base .. ':revoking', nil, ids) end
  if seen.moved then in_chunks('ZREM', base .. ':moved', nil, ids) end
  if seen.deduped then dedup.forget(base, ids, call) end
  if seen.flowed then record.resolve(base, ids, call) end    -- see flow_jobs.lua
  if seen.signalled then record.forget_signals(base, ids) end    -- see signals.lua
end

-- Remove the marks of a job whose record was deleted by hand. The caller removes the job from its location.
function record.lost(base, id, call)
  redis.call('ZREM', base .. ':expiry', id)
  redis.call('SREM', base .. ':revoking', id)
  redis.call('ZREM', base .. ':moved', id)
  redis.call('HDEL', base .. ':waiters', id)
  dedup.forget(base, {id}, call)
  if call.seen.flowed then record.resolve(base, {id}, call) end
  if call.seen.signalled then record.forget_signals(base, {id}) end
  redis.call('UNLINK', base .. ':logs:' .. id)
  chunks.remove(base, {id}, call.seen)
  if call.seen.stepped then journals.remove(base, {id}) end
end
