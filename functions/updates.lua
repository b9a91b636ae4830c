-- updates: writes of a running handler (or a user) to a record.
--   updateJob  channel number id entry kind value [consumer] -> status
--     entry  the lease token of the run that writes, or '' for a user outside of a run
--     consumer  the worker of the run: after a failover another worker may own the same entry, see settle.lua
--     kind   "progress" and "data" (value: a payload), "log" (value: one line)
--     The event of a progress contains the name and the key of the job and, up to 1 KiB, the progress.
--     status "ok", "missing", or "stale": the run has lost the job, nothing was written

local LOG_LINES = 1000
local LARGEST_VALUE = 1024       -- size in bytes of a progress that its event contains
local FIELDS = {'place', 'name', 'route', 'progress_at'}

-- Return the state and the entry of a job, and its { name, key, progress_at } for the event of a progress. This takes
-- one command, unless the job has no record yet.
local function look(base, id)
  local key = base .. ':job:' .. id
  local job = redis.call('HMGET', key, unpack(FIELDS))
  local state, at = record.parts_of(job[1])
  if not state then
    state, at = plain.open(base, id)
    if state then job = redis.call('HMGET', key, unpack(FIELDS)) end
  end
  return state, at, {name = job[2] or '', key = event_content.key_of(job[3]), progress_at = job[4]}
end

local write = {}

-- Write a progress, and its event unless the rules of the queue leave it out.
function write.progress(base, id, value, entry, job)
  local rules, now = event_rules.of(base, event_rules.seen(base)), clock.now()
  local is_due = not rules or event_rules.is_due(rules, job.progress_at, now)
  local is_written = event_rules.is_on(rules, 'progress') and is_due
  -- A user may write before the first claim. Without this mark, that claim would not read the progress.
  if entry == '' then redis.call('HSET', base .. ':meta2', 'touched', '1') end
  redis.call('HSET', base .. ':job:' .. id, 'progress', value)
  if not is_written then return end
  if rules and rules.interval then redis.call('HSET', base .. ':job:' .. id, 'progress_at', digits(now)) end
  job.value = #value <= LARGEST_VALUE and value
  events.progress(base, id, job, now)
end

function write.data(base, id, value)
  redis.call('HSET', base .. ':job:' .. id, 'data', value)
  events.one(base, 'updated', id, nil, clock.now())
end

function write.log(base, id, value)
  local key = base .. ':logs:' .. id
  redis.call('HSETNX', base .. ':meta2', 'logs', '1')
  if redis.call('RPUSH', key, record.timed_line(base, id, clock.now(), value)) > LOG_LINES then
    redis.call('LTRIM', key, -LOG_LINES, -1)
    redis.call('HINCRBY', base .. ':job:' .. id, 'trimmed', 1)    -- watchers count the lines
  end
end

request.register('updateJob', function(base, args)
  local id, entry, kind = args[3], args[4], args[5]
  if not write[kind] then fail('ARGUMENT', 'unknown kind of update ' .. kind) end
  local state, at, job
  if kind == 'progress' then state, at, job = look(base, id) else state, at = plain.open(base, id) end
  if not state then return 'missing' end
  if entry ~= '' and entries.fenced then
    if state ~= 'active' or at ~= entry then return 'stale' end
    if args[7] and runs.consumer_of(base, id, entry) ~= args[7] then return 'stale' end
  end
  write[kind](base, id, args[6], entry, job)
  chunks.announce_one(base, id)
  return 'ok'
end, {'allow-oom'})
