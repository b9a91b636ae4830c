-- returned: jobs whose run ended without an outcome, in their original order. Claims take them before all others.
--   returned  zset  id -> order: the number of the job's entry in `fifo`; for a job that was claimed from elsewhere,
--             ms * 4096 + the last digits of the number of its run, which is higher (exact below 2^53). Jobs of
--             layout 1 have negative orders, see migration.lua.
-- A keyed job returns to its position in its key's line instead, because the limits of its key apply to it too.

local returned = {}

local function order_of(entry)
  local ms, seq = string.match(entry, '^%a(%d+)-(%d+)$')
  if string.sub(entry, 1, 1) == 'p' then return ms end
  return digits(ms * 4096 + seq % 4000)    -- four blocks of numbers, see runs.lua
end

-- Return a job to the queue. The caller has ended its run, and has released its key.
function returned.push(base, id, entry, call)
  local key = base .. ':job:' .. id
  record.keep_added(base, id, entry)
  if string.sub(entry, 1, 1) == 'k' then
    redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
    return
  end
  local position = string.sub(entry, 1, 1) == 'p' and order_of(entry)
    or string.match(redis.call('HGET', key, 'claim') or '', '^%d+ %d+ %d+ (%-?%d+)') or order_of(entry)
  redis.call('HSET', key, 'place', 'waiting r')
  redis.call('ZADD', queue_flags.create(base, 'returned', call.seen), position, id)
  call.startable = call.startable + 1
end
