-- warm_runs: continues a suspended job on the worker that has the function of its run in memory, if the worker is idle.
--   job:<id>   warm  of a suspended job: this worker
-- The call that resumes the job claims it for the worker and pushes it (push.lua), so no other worker can take it. The
-- job is then in the active stream, under an entry that this call has appended. A failover that loses the push loses
-- the entry too. In every other case the job waits like any resumed job, and any worker may claim it: a worker that is
-- busy, paused, closing or gone is not in `idle`, and never delays a job.
-- The job may start before jobs that have waited for longer. This takes no slot from them: an idle worker is one that
-- found no job, and workers have been woken for all jobs that came later.

local warm_runs = {}
local MOST_BYTES = 65536
local MOST_WORK = 16
-- Work of flows that ends no job. Other work may end the job that is resumed, which must not start before.
local HARMLESS = {s = true, m = true}

-- Return the worker that has the function of a suspended job.
function warm_runs.worker_of(base, id)
  return redis.call('HGET', base .. ':job:' .. id, 'warm')
end

local function may_end_jobs(base, call)
  if not call.seen.flow_work then return false end
  local left = redis.call('LRANGE', base .. ':flow_work', '0', digits(MOST_WORK))
  for _, item in ipairs(left) do
    if not HARMLESS[string.sub(item, 1, 1)] then return true end
  end
  return #left > MOST_WORK
end

-- Return the number of the last call of an idle worker, its lease, and the slots with which it is in `idle`; nil if the
-- job cannot be pushed to it.
local function ready(base, worker, call)
  local seen = call.seen
  if worker == call.consumer or seen.paused or seen.limits or may_end_jobs(base, call) then return nil end
  local slots = redis.call('ZSCORE', base .. ':idle', worker)
  if not slots then return nil end
  local number, lock = push.accepting(base, worker)
  if not (lock and push.is_near(base, worker)) then return nil end
  return number, lock, slots
end

-- Return the last claim of a job and its runner, nil for a job that is not pushed: one with an ordering key, with a
-- lease of its own, or with much data.
local function last_claim(key)
  local job = redis.call('HMGET', key, 'claim', 'runner', 'route', 'opts', 'data')
  if not job[1] or (job[3] and string.sub(job[3], 1, 1) == 'k') then return nil end
  if plain.own_lease(job[4]) or #(job[5] or '') > MOST_BYTES then return nil end
  return job[1], job[2]
end

-- Claim the job. Return its token, and the job as a settle call returns it.
local function start(base, id, key, worker, before, lock, call)
  local token = claim.enter_active_stream(base, worker, {id})[1]
  local fence = digits(1 + string.match(before, '^%d+'))
  redis.call('HSET', key, 'place', 'active ' .. token, 'claim', fence .. ' ' .. digits(call.now) .. ' ' .. digits(lock),
    'runner', worker .. ' ' .. failure_groups.version_of(base, worker, call))
  return token, {unpack(claim.reread(base, worker, {token}))}
end

local function undo(base, key, token, before, runner)
  entries.drop(base .. ':lane', {string.sub(token, 2)})
  redis.call('HSET', key, 'claim', before)
  if runner then redis.call('HSET', key, 'runner', runner) else redis.call('HDEL', key, 'runner') end
end

-- Start a job that is resumed on this worker. Return false if the job has to wait for a claim. worker: of
-- warm_runs.worker_of, false without one.
function warm_runs.start(base, id, worker, call)
  if not worker then return false end
  local number, lock, slots = ready(base, worker, call)
  local key = base .. ':job:' .. id
  local before, runner = nil, nil
  if number then before, runner = last_claim(key) end
  if not before then return false end
  local token, job = start(base, id, key, worker, before, lock, call)
  redis.call('ZREM', base .. ':idle', worker)
  local message = 'p' .. number .. ' ' .. digits(call.now) .. ' ' .. cmsgpack.pack(job)
  local heard = #message <= 2 * MOST_BYTES and wakeup.send(base, worker, message)
  if not heard or heard == 0 then
    undo(base, key, token, before, runner)
    if not heard then redis.call('ZADD', base .. ':idle', slots, worker) end
    return false
  end
  push.note(base, worker, {token}, lock, call)
  local line = events.line(call.lines, 'active')
  line[#line + 1] = id
  return true
end
