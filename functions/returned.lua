-- returned: jobs whose run ended without an outcome, in their original order. Claims take them before all others.
--   returned  zset  id -> order: the number of the job's entry in `fifo`; for a job that was claimed from elsewhere,
--             the number of its run plus RUNS, which is higher (exact below 2^53). Jobs of layout 1 have negative
--             orders, see migration.lua.
-- A keyed job returns to its position in its key's line instead, because the limits of its key apply to it too.

local returned = {}
local RUNS = 8e15                -- above ms * 4096 of the runs of earlier builds, until the year 2031
local OF_LANE = 1000             -- the entries of one ms in `lane` have numbers below this, and runs have higher ones

local function order_of(entry)
  local ms, seq = string.match(entry, '^%a(%d+)-(%d+)$')
  if string.sub(entry, 1, 1) == 'p' then return ms end
  if tonumber(seq) < OF_LANE then return digits(ms * 4096 + seq) end
  return digits(RUNS + seq)
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
