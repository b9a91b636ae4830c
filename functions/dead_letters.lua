-- dead_letters: jobs that failed for good, and why.
--   job:{id}  cause   one word: retries_exhausted, unrecoverable, stalled, expired, revoked, malformed, oversize
--             letter  of a job that was moved here from another queue, cmsgpack { its queue, its id there, cause,
--                     reason, attempts made, failed ms, route }
--   meta      dead_letter  the queue that dead letters of this queue are moved to as well; '' or absent: none
-- The `failed` set is itself the place of a queue's dead letters (but for the revoked, which are somebody's wish), so
-- that failing and becoming one are the same write. To a named dead-letter queue they go through the outbox, written in
-- that same call, since it may lie in another slot; the failed record stays as its retention says.
--   setDeadLetter  name | '' -> "ok"
--   getDeadLetter  -> name | ''

local dead_letters = {}

do
  local LONGEST_ID = 480           -- an id may have 512 bytes, and the entry of the outbox comes behind it

  -- The job's id over there: who it was, so that it can be told from all others.
  local function moved_id(queue, id)
    local name = queue .. '/' .. id .. '/'
    if #name <= LONGEST_ID then return name end
    return queue .. '/' .. redis.sha1hex(id) .. '/'
  end

  -- Post a job that has just failed for good, its record written and not yet removed by its retention.
  -- call: { now, lines, seen }.
  function dead_letters.move(base, id, cause, reason, call)
    local target, seen = call.seen.dead_letter, call.seen
    if not target or cause == 'revoked' or outbox.full(base, seen) then return end
    local job = redis.call('HMGET', base .. ':job:' .. id, 'name', 'data', 'opts', 'failures', 'letter', 'route')
    -- What fails again where it was moved stays there: else two queues could send it to and fro for ever.
    if job[5] then return end
    local prefix, queue = string.match(base, '^(.*):{(.*)}$')
    local letter = cmsgpack.pack({queue, id, cause, reason, tonumber(job[4] or 0), call.now, job[6] or ''})
    outbox.push(base, {prefix .. ':{' .. target .. '}', moved_id(queue, id), job[1] or '?', job[2] or '',
      job[3] or '', '', letter}, call)
    events.note(call.lines, 'dead-lettered', id, target)
  end

  register('setDeadLetter', function(base, args)
    redis.call('HSET', base .. ':meta', 'dead_letter', args[1])
    return 'ok'
  end, {'allow-oom'})

  register('getDeadLetter', function(base)
    return redis.call('HGET', base .. ':meta', 'dead_letter') or ''
  end, {'no-writes'})
end
