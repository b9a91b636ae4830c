-- returned: jobs that were running and come back unfinished, in their original order; claimed before all others.
--   returned  zset  id -> order: ms * 4096 + sequence of the job's first stream entry (exact below 2^53)

local returned = {}

local function order_of(entry)
  local ms, seq = string.match(entry, '^%a(%d+)-(%d+)$')
  return digits(ms * 4096 + math.min(tonumber(seq), 4095))
end

-- Put a job back whose entry has been acknowledged and deleted.
function returned.push(base, id, entry)
  local key = base .. ':job:' .. id
  local order = string.sub(entry, 1, 1) == 's' and order_of(entry)
    or string.match(redis.call('HGET', key, 'claim') or '', '^%d+ %d+ %d+ (%d+)') or order_of(entry)
  record.keep_added(base, id, entry)
  redis.call('HSET', key, 'place', 'waiting r')
  redis.call('ZADD', base .. ':returned', order, id)
end
