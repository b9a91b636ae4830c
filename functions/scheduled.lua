-- scheduled: delayed jobs by due time, and their promotion.
--   scheduled  zset  <16 digits of sequence><id> -> due ms; jobs with the same due time start in order of arrival

local scheduled = {}
-- The number of jobs that a call promotes, and the number between two looks at the clock.
local PROMOTE_STEP = 200
local PIECE = 25

-- Delay a job until `due`, ms. Return the job's location, which the caller writes.
function scheduled.push(base, id, due, call)
  local sequence = order.next(base, call)
  redis.call('ZADD', queue_flags.create(base, 'scheduled', call.seen), digits(due), sequence .. id)
  return 'delayed ' .. sequence
end

-- Remove a delayed job from `scheduled`, and from no other structure.
function scheduled.take_out(base, id)
  local _, sequence = record.location(base, id)
  redis.call('ZREM', base .. ':scheduled', sequence .. id)
end

-- Let a delayed job wait for its claim. The caller removes the member. detail: the detail of the event, nil for a due
-- job. Return true if the job waits now.
function scheduled.start(base, member, call, detail)
  local sequence, id = string.sub(member, 1, 16), string.sub(member, 17)
  local job = base .. ':job:' .. id
  local kept = redis.call('HMGET', job, 'place', 'route')
  -- The record was deleted by hand, and a job with the same id may have been added since.
  if kept[1] and kept[1] ~= 'delayed ' .. sequence then return false end
  keyed.wake_up(base, id, call)
  if not kept[1] then
    record.lost(base, id, call)
    events.note(call.lines, 'dropped', id, 'missing')
    return false
  end
  redis.call('HSET', job, 'place', routes.enter(base, id, kept[2], call))
  events.note(call.lines, 'waiting', id, detail)
  return true
end

-- Promote due jobs. Return true if there may be more of them.
local function promote_due(base, call)
  local key, left = base .. ':scheduled', PROMOTE_STEP
  repeat
    local wanted = math.min(left, PIECE)
    local due = redis.call('ZRANGEBYSCORE', key, '-inf', digits(call.now), 'LIMIT', '0', digits(wanted))
    for _, member in ipairs(due) do scheduled.start(base, member, call) end
    if #due > 0 then in_chunks('ZREM', key, nil, due) end
    if #due < wanted then return false end
    left = left - #due
    keyed.review(base, call)
  until left == 0 or budget.has_settled_enough(call.budget)
  return true
end

-- Promote due jobs, keys whose instant has come, and suspended jobs whose deadline has come; a bounded number per call.
-- call.behind: there may be more of them. claims: true if the call claims next
function scheduled.promote(base, call, claims)
  call.behind = keyed.promote(base, call)
  if call.seen.scheduled and promote_due(base, call) then call.behind = true end
  if call.seen.suspended and scheduled.resume_due(base, call) then call.behind = true end    -- see signals.lua
  keyed.review(base, call, claims)
end
