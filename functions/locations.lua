-- locations: the states of a job, and the structures that hold the jobs of each state. A job is in one structure. These
-- functions take it out. The list shows the entry of each location:
--   waiting      "p…"  undelivered entry of `fifo`       "r" member of `returned`     "i" member of `lifo`
--   prioritized  ""  "<number>:"  member of `prioritized`, with this text before the id, see prioritized.lua
--   key-waiting  "i" "o" "h"  member of its key's line, with this read hint before the id, and of `keyed`. Users see
--                the first job of a key in `sleeping` as rate-limited: only the key's pause or rate holds it back.
--   active       "p…"  pending entry of `fifo`           "l…" "k…" run in `runs`, see runs.lua
--   waiting-children  "w"  member of `parents`, see plans.lua
--   suspended    "s"  member of `suspended`, see signals.lua
--   delayed      "<16 digits>"  member of `scheduled`, with these digits before the id
--   completed, failed  member of the zset of that name

local locations = {}

do
  local DIGITS = 16              -- the length of a sequence number

  -- Return the id in a member of one of the structures, and the entry of the job if the member contains it.
  function locations.parts_of(structure, member)
    if structure == 'scheduled' then return string.sub(member, DIGITS + 1), string.sub(member, 1, DIGITS) end
    if structure ~= 'prioritized' then return member, nil end
    local entry, id = prioritized.parts_of(member)
    return id, entry
  end

  -- Return the id in a member of one of the structures.
  function locations.id_of(structure, member)
    return (locations.parts_of(structure, member))
  end
end

function locations.is_final(state)
  return state == 'completed' or state == 'failed'
end

-- Return true if a job in this state has not started yet. The state is nil if the job does not exist.
function locations.is_unstarted(state)
  return state and state ~= 'active' and state ~= 'suspended' and not locations.is_final(state)
end

-- End a run that is not settled, and free its key and its place in the limits. row: see runs.lua. This does not read
-- the entry of the run, because that copies its payload.
function locations.give_up(base, row, call)
  local key = row[6]
  runs.drop(base, row)
  if key then keyed.release(base, {key}, call) end
  limits.freed(1, call)
end

local leave = {}

function leave.waiting(base, id, entry)
  if entry == 'r' then
    redis.call('ZREM', base .. ':returned', id)
  elseif entry == 'i' then
    redis.call('ZREM', base .. ':lifo', id)
  else
    entries.drop(base .. ':fifo', {string.sub(entry, 2)})
  end
end

function leave.prioritized(base, id, entry)
  redis.call('ZREM', base .. ':prioritized', entry .. id)
end

leave['waiting-children'] = function(base, id)
  redis.call('ZREM', base .. ':parents', id)
end

function leave.suspended(base, id)
  redis.call('ZREM', base .. ':suspended', id)
  redis.call('HDEL', base .. ':job:' .. id, 'waits', 'warm')
end

leave['key-waiting'] = function(base, id, _, call)
  keyed.leave(base, id, call)
end

-- Take a running job out, because it is removed. Its handler still executes, see stopping.lua.
function leave.active(base, id, entry, call)
  local row = runs.row(base, id, entry)
  if row and stopping.is_limited(base, entry, call) and stopping.keep(base, id, entry, row, call) then
    runs.drop(base, row)
  elseif row then
    locations.give_up(base, row, call)
  else
    entries.drop(base .. ':fifo', {string.sub(entry, 2)})
    limits.freed(1, call)
  end
end

function leave.delayed(base, id, entry, call)
  redis.call('ZREM', base .. ':scheduled', entry .. id)
  keyed.wake_up(base, id, call)
end

function leave.completed(base, id)
  redis.call('ZREM', base .. ':completed', id)
end

function leave.failed(base, id)
  redis.call('ZREM', base .. ':failed', id)
end

-- Take an existing job out of the structure of its location. The caller writes the new location.
function locations.leave_state(base, id, state, entry, call)
  leave[state](base, id, entry, call)
end

-- The same for a caller that does not know the location. Return the entry in it.
function locations.leave(base, id, call)
  local state, entry = record.location(base, id)
  leave[state](base, id, entry, call)
  return entry
end

-- Return the number of jobs that wait in `fifo`. All other entries are pending or belong to completed plain jobs.
function locations.fifo_count(base)
  local fifo = base .. ':fifo'
  return redis.call('XLEN', fifo) - entries.pending_count(fifo) - redis.call('HLEN', base .. ':results')
end

-- Refuse an add while as many jobs wait as the queue allows. The check comes before the jobs, so a call of many jobs
-- may exceed the limit.
function limits.check_waiting(base)
  local most = tonumber(redis.call('HGET', base .. ':limits', 'max_waiting') or math.huge)
  local waiting = locations.fifo_count(base) + redis.call('ZCARD', base .. ':returned')
    + redis.call('ZCARD', base .. ':lifo') + redis.call('ZCARD', base .. ':prioritized')
    + redis.call('ZCARD', base .. ':keyed')
  if waiting >= most then fail('FULL', digits(waiting) .. ' jobs wait, and the limit is ' .. digits(most)) end
end

-- Return a lower bound of the number of jobs that can be claimed now. Each ready key counts as one job.
function locations.ready_count(base)
  return locations.fifo_count(base) + redis.call('ZCARD', base .. ':returned')
    + redis.call('ZCARD', base .. ':lifo') + redis.call('ZCARD', base .. ':prioritized')
    + redis.call('ZCARD', base .. ':ready')
end
