-- dead_letters: jobs that failed for good, and the cause.
--   job:{id}  cause   one of: retries_exhausted, unrecoverable, stalled, expired, revoked, malformed, oversize
--             letter  the origin, of a job that was moved here from another queue: cmsgpack { its queue, its id there,
--                     cause, reason, attempts made, failed ms, route }
--   meta2     dead_letter  the queue that receives copies of this queue's dead letters; '' or absent: none
-- The dead letters of a queue are the jobs in `failed`. The set contains revoked jobs too, which are not dead letters,
-- because a user wanted their end. A dead-letter queue may be in another cluster slot, so it receives copies through
-- the outbox, which the call that fails the job writes. The failed job itself stays for as long as its retention says.
--   setDeadLetter  name | '' -> "ok"
--   getDeadLetter  -> name | ''

local dead_letters = {}

do
  local LONGEST_ID = 480           -- an id may have 512 bytes, and the id of the outbox entry is appended to it

  -- Return the id that the copy has in the dead-letter queue. It names the queue and the job, so it is unique.
  local function moved_id(queue, id)
    local name = queue .. '/' .. id .. '/'
    if #name <= LONGEST_ID then return name end
    return queue .. '/' .. redis.sha1hex(id) .. '/'
  end

  -- Post a copy of a job that has just failed for good. Its record is written and not yet removed by its retention.
  function dead_letters.move(base, id, cause, reason, call)
    local target, seen = call.seen.dead_letter, call.seen
    if not target or cause == 'revoked' or outbox.full(base, seen) then return end
    local key = base .. ':job:' .. id
    local job = redis.call('HMGET', key, 'name', 'opts', 'failures', 'letter', 'route')
    -- A dead letter that fails again stays in its queue. Otherwise two queues could move it back and forth for ever.
    if job[4] then return end
    -- The payload may be large, and each copy of it costs time.
    local known = call.payload and call.payload.id == id and call.payload.data
    local data = known or redis.call('HGET', key, 'data') or ''
    local prefix, queue = string.match(base, '^(.*):{(.*)}$')
    local origin = cmsgpack.pack({queue, id, cause, reason, tonumber(job[3] or 0), call.now, job[5] or ''})
    outbox.push(base, {prefix .. ':{' .. target .. '}', moved_id(queue, id), job[1] or '?', data, job[2] or '', '',
      origin}, call)
    events.note(call.lines, 'dead-lettered', id, target)
  end

  register('setDeadLetter', function(base, args)
    redis.call('HSET', base .. ':meta2', 'dead_letter', args[1])
    return 'ok'
  end, {'allow-oom'})

  register('getDeadLetter', function(base)
    return redis.call('HGET', base .. ':meta2', 'dead_letter') or ''
  end, {'no-writes'})
end
