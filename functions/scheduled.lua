-- scheduled: delayed jobs by due time, and their promotion.
--   scheduled  zset  id -> due ms

local scheduled = {}
local PROMOTE_STEP = 200

function scheduled.push(base, id, due, call)
  redis.call('ZADD', base .. ':scheduled', digits(due), id)
  call.seen.scheduled = true
end

local function promote_job(base, id, call)
  local job = base .. ':job:' .. id
  local kept = redis.call('HMGET', job, 'place', 'route')
  keyed.wake_up(base, id, call)
  if not kept[1] then
    record.lost(base, id)
    events.note(call.lines, 'dropped', id, 'missing')
    return
  end
  redis.call('HSET', job, 'place', routes.enter(base, id, kept[2], call))
  events.note(call.lines, 'waiting', id)
end

-- Let due jobs wait for a claim, and keys whose instant has come; a bounded number per call.
function scheduled.promote(base, call)
  keyed.promote(base, call)
  if call.seen.scheduled then
    local key = base .. ':scheduled'
    local due = redis.call('ZRANGEBYSCORE', key, '-inf', call.now, 'LIMIT', 0, PROMOTE_STEP)
    for _, id in ipairs(due) do promote_job(base, id, call) end
    if #due > 0 then in_chunks('ZREM', key, nil, due) end
  end
  keyed.review(base, call)
end
