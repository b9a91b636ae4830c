-- record: one job's hash, and where the job stands.
--   job:{id} hash
--     name, data, opts     written by `add` (opts only when not the default)
--     place                "<state> <entry>": the only word on where the job stands, see locations.lua. A running job's
--                          entry is its lease token; a finished job keeps the entry of its last run.
--     route                how the job waits when it is ready, see routes.lua; absent for a plain one
--     (A letter beside the id of a waiting job, in its stream entry or its key's line, tells what a claim has to read:
--     "i" name and data alone, "o" options too, "h" a job with a history. Each field less saves its share of every
--     claim.)
--     claim                "<fence> <started ms> <lock ms> [<order>]" of the last claim ("0 0 0" before the first one
--                          of a job that was added with a delay); order: see returned.lua. A job without it was never
--                          claimed: of the fields below it can only have what a user wrote or ended.
--     added                created at, ms; absent while the first stream entry still tells it, and of a keyed job: its
--                          route does
--     failures, stalls     runs that ended in failure; leases that ran out
--     ended, result, reason, error, progress
--     revoked              why somebody revoked it, if that was said
--     cause, letter        why it failed for good; where it was moved here from: see dead_letters.lua
--     dedup                the deduplication id that it owns or owned, see dedup.lua
--     after                of a job that starts when another has ended: when it is due then, see successors.lua
--     drop                 the record ends when its hold does, see `held` in finish.lua. "1": only somebody who may
--                          still read the result keeps it; "t": it has a time to live of its own
--   logs:{id} list
-- Only `add` creates a record: every other write is made where the record is known to exist, or is taken back
-- (`undone` in settle.lua).

local record = {}

function record.key(base, id)
  return base .. ':job:' .. id
end

-- State and entry, or nil when there is no such job.
function record.place(base, id)
  local place = redis.call('HGET', base .. ':job:' .. id, 'place')
  if not place then return nil end
  local at = string.find(place, ' ', 1, true)
  return string.sub(place, 1, at - 1), string.sub(place, at + 1)
end

-- Whether the job was ever claimed.
function record.has_started(base, id)
  local last = redis.call('HGET', base .. ':job:' .. id, 'claim')
  return last and last ~= '0 0 0'
end

-- Keep the time of creation before the entry that told it is given up.
function record.keep_added(base, id, entry)
  if string.sub(entry, 1, 1) == 's' then
    redis.call('HSETNX', base .. ':job:' .. id, 'added', string.match(entry, '^s(%d+)-'))
  end
end

local function unlink_all(prefix, ids)
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = prefix .. id end
  in_chunks('UNLINK', nil, nil, keys)
end

-- Remove the records and all that hangs on them; the caller has taken the jobs out of their places.
function record.unlink(base, ids)
  if #ids == 0 then return end
  unlink_all(base .. ':job:', ids)
  if redis.call('HEXISTS', base .. ':meta', 'logs') == 1 then unlink_all(base .. ':logs:', ids) end
end

-- Drop the marks that features keep beside the record. Each costs nothing while the feature is unused.
function record.forget_marks(base, ids, call)
  local seen = call.seen
  if seen.expiry then in_chunks('ZREM', base .. ':expiry', nil, ids) end
  if seen.revoking then in_chunks('SREM', base .. ':revoking', nil, ids) end
  if seen.moved then in_chunks('ZREM', base .. ':moved', nil, ids) end
  if seen.deduped then dedup.forget(base, ids, call) end
end

-- Somebody deleted the record by hand, and its place is given up now: what stood beside it goes too.
function record.lost(base, id, call)
  redis.call('ZREM', base .. ':expiry', id)
  redis.call('SREM', base .. ':revoking', id)
  redis.call('ZREM', base .. ':moved', id)
  redis.call('HDEL', base .. ':waiters', id)
  dedup.forget(base, {id}, call)
  redis.call('UNLINK', base .. ':logs:' .. id)
end
