-- updates: writes of a running handler (or a user) to a record.
--   updateJob  channel number id entry kind value [consumer] -> status
--     entry  the lease token of the run that writes, or '' for a user outside of a run
--     consumer  the worker of the run: after a failover another worker may own the same entry, see settle.lua
--     kind   "progress" and "data" (value: a payload), "log" (value: one line)
--     The event of a progress contains it, up to 1 KiB.
--     status "ok", "missing", or "stale": the run has lost the job, nothing was written

local LOG_LINES = 1000
local LARGEST_VALUE = 1024       -- size in bytes of a progress that its event contains

local write = {}

function write.progress(base, id, value, entry)
  -- A user may write before the first claim, which otherwise would read the record as one without a history.
  if entry == '' then redis.call('HSET', base .. ':meta2', 'touched', '1') end
  redis.call('HSET', base .. ':job:' .. id, 'progress', value)
  return 'progress'
end

function write.data(base, id, value)
  redis.call('HSET', base .. ':job:' .. id, 'data', value)
  return 'updated'
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
  local state, at = plain.open(base, id)
  if not state then return 'missing' end
  if entry ~= '' and entries.fenced then
    if state ~= 'active' or at ~= entry then return 'stale' end
    if args[7] and entries.consumer_of(base, entry) ~= args[7] then return 'stale' end
  end
  local event = write[kind](base, id, args[6], entry)
  chunks.announce_one(base, id)
  if event == 'progress' and #args[6] <= LARGEST_VALUE then
    local name = redis.call('HGET', base .. ':job:' .. id, 'name')
    events.with_value(base, event, id, clock.now(), name or '', args[6])
  elseif event then
    events.one(base, event, id, nil, clock.now())
  end
  return 'ok'
end, {'allow-oom'})
