-- warm_runs: continues a suspended job on the worker that has the function of its run in memory, if the worker is idle.
--   job:<id>   warm  of a suspended job: this worker and its version, as in the field `runner`
-- The call that resumes the job claims it for the worker and pushes it (push.lua), so no other worker can take it. The
-- job then has a run that this call has started. A failover that loses the push loses the run too. In every other case
-- the job waits like any resumed job, and any worker may claim it: a worker that is busy, paused, closing or gone is
-- not in `idle`, and never delays a job.
-- The job may start before jobs that have waited for longer. This takes no slot from them: an idle worker is one that
-- found no job, and workers have been woken for all jobs that came later.

local warm_runs = {}
local MOST_BYTES = 65536
local MOST_WORK = 16
local ROUTE = 5                  -- the position in a history, see claimed_rows.lua
-- Work of flows that ends no job. Other work may end the job that is resumed, which must not start before.
local HARMLESS = {s = true, m = true}

local function may_end_jobs(base, call)
  if not call.seen.flow_work then return false end
  local left = redis.call('LRANGE', base .. ':flow_work', '0', digits(MOST_WORK))
  for _, item in ipairs(left) do
    if not HARMLESS[string.sub(item, 1, 1)] then return true end
  end
  return #left > MOST_WORK
end

-- Return the number of the last call of an idle worker, and its lease; nil if the job cannot be pushed to it.
local function ready(base, worker, call)
  local seen = call.seen
  if worker == call.consumer or seen.paused or seen.limits or may_end_jobs(base, call) then return nil end
  if not redis.call('ZSCORE', base .. ':idle', worker) then return nil end
  local number, lock = push.accepting(base, worker)
  if lock and push.is_near(base .. ':wake:' .. worker) then return number, lock end
end

-- Return a suspended job as a settle call returns it, but without its entry; nil for a job that is not pushed: one with
-- an ordering key, with a lease of its own, or with much data.
local function job_of(id, key, hand_over)
  local name, data, opts, fence, history, before = claimed_rows.read.h(key)
  if not before or plain.own_lease(opts) or #data > MOST_BYTES then return nil end
  local route = history[ROUTE]
  if route and string.sub(route, 1, 1) == 'k' then return nil end
  local out = {n = 0, tokens = {}}
  claimed_rows.put(out, id, '', name, data, opts, fence, history)
  claimed_rows.put_hand_over(out, hand_over)
  return {unpack(out)}, fence
end

-- Publish the job, which is pending under its entry. Return false if the worker does not get it.
local function send(base, worker, number, job, call)
  local message = 'p' .. number .. ' ' .. digits(call.now) .. ' ' .. cmsgpack.pack(job)
  local heard = #message <= 2 * MOST_BYTES and wakeup.send(base, worker, message)
  if heard then redis.call('ZREM', base .. ':idle', worker) end
  return heard and heard > 0
end

-- Start a job that is resumed on the worker that has the function of its run. Return false if the job has to wait for a
-- claim. warm: its field `warm`, false without one; hand_over: of the job, packed, see signals.lua.
function warm_runs.start(base, id, warm, hand_over, call)
  if not warm then return false end
  local worker = string.match(warm, '^%S*')
  local number, lock = ready(base, worker, call)
  local key, job, fence = base .. ':job:' .. id, nil, nil
  if number then job, fence = job_of(id, key, hand_over) end
  if not job then return false end
  local token = runs.start(base, worker, {id}, nil, call)[1]
  job[1] = token
  if not send(base, worker, number, job, call) then
    runs.remove(base, {id}, {token}, {})
    return false
  end
  redis.call('HSET', key, 'place', 'active ' .. token, 'claim', fence .. ' ' .. digits(call.now) .. ' ' .. digits(lock),
    'runner', warm)
  push.note(base, worker, {claim_tokens.of(token, id)}, lock, call)
  local line = events.line(call.lines, 'active')
  line[#line + 1] = id
  return true
end
