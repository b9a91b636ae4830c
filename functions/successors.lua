-- successors: deduplication of mode "keep_last". While the owner of a deduplication id has not started, an add gives it
-- its data. Once the owner has started, the first add makes a successor: a delayed job that starts when the owner has
-- ended for good, and owns the id then. Later adds give their data to the successor. So at most one job runs and one
-- waits, and the last data always run.
--   job:{id}   field after  when the successor is due once the owner has ended: "+<delay ms>" or "@<due ms>"
--   scheduled  the successor stands there at NEVER
-- An owner that ends, or whose record goes, in whatever way, frees its marks (record.forget_marks, record.lost): its
-- successor starts there, so no path can forget it. Retries, hand-backs and lost leases are no end.
--   getDeduplication      d -> owner | ''
--   releaseDeduplication  lane number d -> 0 | 1     later adds make a new job; a successor starts

local successors = {}
successors.NEVER = 253402300799000    -- the last second of the year 9999

-- Whether a job can still take another one's data: it has never started, and is not too late to.
local function can_take(base, id, state, call)
  if not locations.is_unstarted(state) or record.has_started(base, id) then return false end
  local late = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', id)
  return not late or tonumber(late) > call.now
end

local function give(base, id, name, data)
  redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data)
  return 'duplicate', id
end

-- An add of mode keep_last whose own id is free. Answers the word and the job that took its data; or nil, and the job
-- that the added one has to follow if there is one.
function successors.meet(base, wanted, name, data, call)
  local owner, successor = dedup.owner(base, wanted, call.now)
  local state = owner and record.place(base, owner)
  if not state or locations.is_final(state) then return nil end
  if can_take(base, owner, state, call) then return give(base, owner, name, data) end
  if state ~= 'active' and not record.has_started(base, owner) then return nil end    -- too late to start
  local next_state = successor and record.place(base, successor)
  if next_state and can_take(base, successor, next_state, call) then return give(base, successor, name, data) end
  -- Somebody promoted the successor: it runs beside the owner, and what is added now has to come after it.
  local runs = next_state and not locations.is_final(next_state) and record.has_started(base, successor)
  return nil, nil, runs and successor or owner
end

-- The place of a successor that is being added, and its field `after`.
function successors.put_off(base, id, extra, call)
  local after = extra.at and '@' .. digits(extra.at) or '+' .. digits(extra.delay or 0)
  return scheduled.push(base, id, successors.NEVER, call), after
end

-- Whether a job stands in `scheduled` as a successor. entry: of its place.
function successors.is_held(base, id, entry)
  return tonumber(redis.call('ZSCORE', base .. ':scheduled', entry .. id) or 0) == successors.NEVER
end

-- Whether a delayed job that once was a successor stands there with good reason.
function successors.is_expected(base, id, entry)
  if not successors.is_held(base, id, entry) then return true end
  local d = redis.call('HGET', base .. ':deduped', id)
  local _, successor = dedup.owner(base, {id = d or ''}, 0)
  return successor == id
end

-- Let a job start that waited for the end of another, unless somebody moved it since. Answers whether there is such a
-- job that has not ended.
function dedup.start_next(base, id, call)
  local state, entry = record.place(base, id)
  if not state or locations.is_final(state) then return false end
  if state ~= 'delayed' or not successors.is_held(base, id, entry) then return true end
  local key = base .. ':job:' .. id
  local sign, ms = string.match(redis.call('HGET', key, 'after') or '+0', '^([+@])(%d+)$')
  local due = tonumber(ms or 0) + (sign == '+' and call.now or 0)
  locations.leave(base, id, call)
  if due > call.now then
    redis.call('HSET', key, 'place', scheduled.push(base, id, due, call))
    return true
  end
  redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
  events.note(call.lines, 'waiting', id, 'followed')
  call.behind = true               -- a claim that ends a job in passing has looked at this line already
  return true
end

register('getDeduplication', function(base, args)
  return dedup.owner(base, {id = args[1]}, clock.now()) or ''
end, {'no-writes'})

request.register('releaseDeduplication', function(base, args)
  local call = queue_flags.call(base)
  local owned = dedup.release(base, args[3], call)
  wakeup.finish(base, call)
  return owned and 1 or 0
end, {'allow-oom'})
