-- places: the table of states. Each state has exactly one structure; here a job is taken out of whichever holds it.
--   waiting    entry "s…"  undelivered entry of `stream`      entry "r"  member of `returned`
--   active     entry "s…"  pending entry of `stream`          entry "l…" pending entry of `lane`
--   delayed    member of `scheduled`
--   completed, failed      member of the zset of that name

local places = {}

function places.drop_entry(base, entry)
  local stream, raw = record.stream_of(base, entry)
  redis.call('XACK', stream, GROUP, raw)
  redis.call('XDEL', stream, raw)
end

local leave = {}

function leave.waiting(base, id, entry)
  if entry == 'r' then redis.call('ZREM', base .. ':returned', id) else places.drop_entry(base, entry) end
end

function leave.active(base, _, entry)
  places.drop_entry(base, entry)
end

function leave.delayed(base, id)
  redis.call('ZREM', base .. ':scheduled', id)
end

function leave.completed(base, id)
  redis.call('ZREM', base .. ':completed', id)
end

function leave.failed(base, id)
  redis.call('ZREM', base .. ':failed', id)
end

-- Take an existing job out of its structure. Answers the entry it had. The caller writes the new place.
function places.leave(base, id)
  local state, entry = record.place(base, id)
  leave[state](base, id, entry)
  return entry
end

-- The consumer under whose name a running job is pending, or nil.
function places.consumer_of(base, entry)
  local stream, raw = record.stream_of(base, entry)
  local rows = redis.pcall('XPENDING', stream, GROUP, raw, raw, 1)
  return not rows.err and rows[1] and rows[1][2] or nil
end

function places.pending_count(stream)
  local summary = redis.pcall('XPENDING', stream, GROUP)
  return summary.err and 0 or summary[1]
end

-- How many jobs could be claimed now.
function places.ready_count(base)
  local stream = base .. ':stream'
  return redis.call('XLEN', stream) - places.pending_count(stream) + redis.call('ZCARD', base .. ':returned')
end
