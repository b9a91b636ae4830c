-- successors: deduplication of mode "keep_last". While the owner of a deduplication id has not started, an add replaces
-- its data. After the owner has started, the first add makes a successor: a delayed job that starts when the owner has
-- ended for good, and owns the id then. Later adds replace the data of the successor. So at most one job runs and one
-- waits, and the latest data are always processed.
--   job:{id}   field after  when the successor is due once the owner has ended: "+<delay ms>" or "@<due ms>"
--   scheduled  contains the successor with the score NEVER
-- Every end and every removal of an owner frees its marks (record.forget_marks, record.lost), and that step starts the
-- successor. A retry, a release or a lost lease is not an end.
--   getDeduplication      d -> owner | ''
--   releaseDeduplication  channel number d -> 0 | 1     later adds make a new job; a successor starts

local successors = {}
successors.NEVER = clock.NEVER

-- Return true if a job can still take the data of another one: it has never started and has not expired.
local function can_take(base, id, state, call)
  if not locations.is_unstarted(state) or record.has_started(base, id) then return false end
  local late = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', id)
  return not late or tonumber(late) > call.now
end

local function give(base, id, name, data)
  redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data)
  return 'duplicate', id
end

-- Handle an add of mode keep_last whose own id is free. Return the status and the job that took its data. If no job
-- took them, return nil, nil and the job that the added one has to follow, if there is one.
function successors.meet(base, wanted, name, data, call)
  local owner, successor = dedup.owner(base, wanted, call.now)
  local state = owner and record.location(base, owner)
  if not state or locations.is_final(state) then return nil end
  if can_take(base, owner, state, call) then return give(base, owner, name, data) end
  if state ~= 'active' and not record.has_started(base, owner) then return nil end    -- expired
  local next_state = successor and record.location(base, successor)
  if next_state and can_take(base, successor, next_state, call) then return give(base, successor, name, data) end
  -- The successor was promoted: it runs at the same time as the owner, and the new job has to follow it.
  local runs = next_state and not locations.is_final(next_state) and record.has_started(base, successor)
  return nil, nil, runs and successor or owner
end

-- Return the location of a successor that is being added, and its field `after`.
function successors.put_off(base, id, extra, call)
  local after = extra.at and '@' .. digits(extra.at) or '+' .. digits(extra.delay or 0)
  return scheduled.push(base, id, successors.NEVER, call), after
end

-- Return true if a job is in `scheduled` as a successor. entry: the entry of its location.
function successors.is_held(base, id, entry)
  return tonumber(redis.call('ZSCORE', base .. ':scheduled', entry .. id) or 0) == successors.NEVER
end

-- Return true if a delayed job that was once a successor is in `scheduled` for a valid reason. An expired successor has
-- been replaced, and waits for the sweep that fails it.
function successors.is_expected(base, id, entry)
  if not successors.is_held(base, id, entry) then return true end
  local d = redis.call('HGET', base .. ':deduped', id)
  local _, successor = dedup.owner(base, {id = d or ''}, 0)
  if successor == id then return true end
  local late = redis.call('ZSCORE', base .. ':expiry', id)
  return late and tonumber(late) <= clock.now()
end

-- Start a job that waited for the end of another, unless it was moved since. Return true if the job exists and has not
-- ended.
function dedup.start_next(base, id, call)
  local state, entry = record.location(base, id)
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
  -- If this call is a claim, it may have looked at that structure before. The next claim must come soon.
  call.behind = true
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
