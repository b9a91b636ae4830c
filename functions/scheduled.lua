-- scheduled: delayed jobs by due time, and their promotion to the stream.
--   scheduled  zset  id -> due ms

local scheduled = {}
local PROMOTE_STEP = 200

function scheduled.push(base, id, due)
  redis.call('ZADD', base .. ':scheduled', digits(due), id)
end

-- Append a job that has been elsewhere to the stream; answers its place.
function scheduled.to_stream(base, id)
  return 'waiting s' .. redis.call('XADD', base .. ':stream', '*', 'h', id)
end

-- Move due jobs to the stream, a bounded number per call. Answers how many.
function scheduled.promote(base, now, lines)
  local key = base .. ':scheduled'
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, PROMOTE_STEP)
  if #due == 0 then return 0 end
  local moved = 0
  for _, id in ipairs(due) do
    local job = base .. ':job:' .. id
    if exists(job) then
      redis.call('HSET', job, 'place', scheduled.to_stream(base, id))
      events.note(lines, 'waiting', id)
      moved = moved + 1
    else
      record.lost(base, id)
    end
  end
  in_chunks('ZREM', key, nil, due)
  return moved
end
