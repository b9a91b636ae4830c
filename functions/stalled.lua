-- stalled: reclaims jobs whose lease expired. A job that stalls too often is failed.
--   sweep  channel number max_stalled interval_ms gap_ms resume -> { more, recovered ids, failed ids, outbox, next } |
--          {}
--     next: the time until the next fire time of a scheduler, ms; '' without one.
--     Any process may sweep at any time. The call does nothing (and returns {}) when the last sweep is younger than the
--     interval, unless it resumes one (`more` was 1). One call does as much as its budget allows. A later one continues
--     with the runs from two cursors, and with the rest: retention, expired jobs, dead consumers. outbox: 1
--     when there is something to relay.
--   closeWorker  channel number consumer -> { more, returned }
--     Return all jobs that run under a consumer that stops, then remove the consumer.
--   meta2  hash  swept_at; sweep_stream, sweep_runs (cursors); sweep_rest (1: a part of the rest is not done yet);
--               shortest_lease (ms; no job of the queue runs with a shorter lease); for gap_ms and outages see
--               lease.lua
--   lane   stream  runs of jobs that did not wait in `fifo`, in earlier builds and in layout 1. Sweeps return these
--                  jobs to the queue.
-- Two counters end a job that crashes its workers: `stalls` counts runs whose lease expired, up to max_stalled;
-- `undelivered` counts claims whose reply did not reach a worker that is alive, up to MOST_UNDELIVERED.

local stalled = {}
local STEP = 100
local MOST_STEPS = 20
local TRIM_STEP = 200
local EXPIRE_STEP = 10
local SHORTEST_LEASE_MS = 1000
local POSTED_BYTES = 1048576
local FORGET_AFTER_MS = 300000
local MOST_UNDELIVERED = 20
local HEARD_OF_MS = 60000        -- by then every live worker has renewed; most renew every 20 seconds

local function pending(stream, from, consumer)
  local reply
  if consumer then
    reply = redis.pcall('XPENDING', stream, GROUP, from, '+', STEP, consumer)
  else
    reply = redis.pcall('XPENDING', stream, GROUP, from, '+', STEP)
  end
  return reply.err and {} or reply
end

-- Return true if a call should leave the rest to the next call. Relaying costs time for each byte that a call posted.
local function is_enough(call_budget, call)
  return keyed.has_touched_many(call) or (call.seen.posted or 0) > POSTED_BYTES or budget.is_spent(call_budget)
end

-- Return the token, the job and its key (nil without one) of an entry of `lane`.
local function lane_parts(entry)
  local raw, field, value = entry[1], entry[2][1], entry[2][2]
  if field == 'h' then return 'l' .. raw, value, nil end
  if string.sub(field, 1, 1) == 'k' then return 'k' .. raw, value, string.sub(field, 2) end
  -- The entry of a compact job has its id and its text.
  local key = string.match(value, '^k %d+ %d+ %d+ %d+ ([^' .. SEP .. ']*)')
  return (key and 'k' or 'l') .. raw, field, key
end

-- Return the jobs of `lane` to the queue. Return true if nothing is left to return.
local function return_old_runs(base, call, call_budget)
  local lane = base .. ':lane'
  if not exists(lane) then return true end
  for i, row in ipairs(redis.call('XRANGE', lane, '-', '+', 'COUNT', STEP)) do
    if i > 1 and is_enough(call_budget, call) then return false end
    local token, id, key = lane_parts(row)
    redis.call('XDEL', lane, row[1])
    if call.seen.compact then compact.open_run(base, id, token) end
    local state, entry = plain.location(base, id)
    local is_current = state == 'active' and entry == token
    if is_current or not state then
      if key then keyed.release(base, {key}, call) end
      limits.freed(1, call)
    end
    if is_current then
      returned.push(base, id, token, call)
      events.note(call.lines, 'returned', id)
    end
  end
  if redis.call('XLEN', lane) > 0 then return false end
  redis.call('UNLINK', lane)
  return true
end

-- Return when the job was claimed, and its lease; both in ms.
local function claim_of(base, id)
  local text = redis.call('HGET', base .. ':job:' .. id, 'claim')
  local started, lock = string.match(text or '', '^%d+ (%d+) (%d+)')
  return tonumber(started or 0), tonumber(lock or SHORTEST_LEASE_MS)
end

-- Return true if the reply to the claim never reached its worker, so that no run began.
--
-- A worker that received the reply names the run when it renews (which leaves a mark, see lease.lua), and its next
-- call has another number. A worker that did not receive it repeats the call, while its lease thread renews other
-- entries or none. If the worker fell silent, the job may have crashed it, so that counts as a stall. Therefore a
-- sign of life at least half a lease after the claim is required: workers renew every third of a lease.
local function was_undelivered(base, row, entry, started, lock, now)
  local consumer, deliveries = row[2], row[4]
  if deliveries >= runs.RENEWED then return false end
  local seen = tonumber(redis.call('ZSCORE', base .. ':alive', consumer) or nil)
  if not seen or clock.is_ahead(seen, now) or seen - started < lock / 2 then return false end
  for _, token in ipairs(settle.claimed_last(base, consumer)) do
    if token == entry then return true end
  end
  return false
end

local function fail_or_return(base, id, entry, cause, call, report, list)
  if redis.call('SISMEMBER', base .. ':revoking', id) == 1 then cause = 'revoked' end
  if cause then
    finish.fail(base, id, entry, cause, call)
    report.failed[#report.failed + 1] = id
  else
    returned.push(base, id, entry, call)
    if list then list[#list + 1] = id end
  end
end

-- Handle one job whose lease expired: return it to its old position in the order, or fail it. consumer: its worker.
local function recover(base, id, entry, consumer, undelivered, max_stalled, call, report)
  local key = base .. ':job:' .. id
  if undelivered then
    local count = redis.call('HINCRBY', key, 'undelivered', 1)
    events.note(call.lines, 'returned', id)
    fail_or_return(base, id, entry, count > MOST_UNDELIVERED and 'undelivered', call, report)
  else
    local stalls = redis.call('HINCRBY', key, 'stalls', 1)
    events.note(call.lines, 'stalled', id, digits(stalls))
    local group = failure_groups.found(base, id, 'stalled', 'stalled', consumer, call)
    local runner = consumer .. ' ' .. failure_groups.version_of(base, consumer, call)
    redis.call('HSET', key, 'group', group, 'runner', runner)
    job_history.note_stall(base, id, runner, group, call)
    fail_or_return(base, id, entry, stalls > max_stalled and 'stalled', call, report, report.recovered)
  end
end

-- Remove the names under which a worker has runs. It has none now, and gets new names with its next run.
local function forget_names(base, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', base .. ':fifo', GROUP, consumer)
  runs.forget(base, consumer)
end

-- Do that for the worker of a run that has ended, if it died before its first renewal. It is not in `alive`, so
-- `forget_dead` does not find it. A worker that is alive all the same stays in `idle`.
local function forget_unknown(base, consumer)
  if redis.call('ZSCORE', base .. ':alive', consumer) or runs.count_of(base, consumer) > 0 then return end
  local row = redis.pcall('XPENDING', base .. ':fifo', GROUP, '-', '+', 1, consumer)
  if not row[1] then forget_names(base, consumer) end
end

-- Return the job of a row, its key, its token, and the fields of its entry if this read them. Reading an entry copies
-- its payload, so this does not read the entry of a plain job that has a record.
local function run_of(base, row, call)
  if not row[5] and call.seen.recorded and plain.had_record(base, row[1]) then
    return plain.id_of(row[1]), nil, 'p' .. row[1]
  end
  return runs.job_of(base, row)
end

-- Check one row of a run that was not renewed for `idle` ms that count, see runs.lua. Return true if the run has ended.
local function sweep_row(base, row, idle, max_stalled, call, report)
  local raw = row[1]
  local id, _, entry, fields = run_of(base, row, call)
  -- pcall: a store key of another type, created by hand, must not stop the sweep of all other entries.
  local location = id and redis.pcall('HGET', base .. ':job:' .. id, 'place')
  if fields and fields[1] ~= '' and not location and not plain.had_record(base, raw) then
    local started, lock = plain.claim_of(base, row, fields, call.now)
    if idle < lock then return false end
    plain.record_run(base, raw, fields, started, lock, call.seen)
    call.payload = {id = id, data = fields[2]}
    location = 'active ' .. entry
  end
  if row[5] and not location and call.seen.compact then
    local started, lock = compact.claim_of(base, id, entry)
    if started and idle < lock then return false end
    if started and compact.open_run(base, id, entry) then location = 'active ' .. entry end
  end
  local active = id and location == 'active ' .. entry
  local undelivered = false
  if active then
    local started, lock = claim_of(base, id)
    if idle < lock then return false end
    undelivered = was_undelivered(base, row, entry, started, lock, call.now)
  end
  locations.give_up(base, row, call)
  if active then
    recover(base, id, entry, row[2], undelivered, max_stalled, call, report)
  elseif id and location == 'waiting ' .. entry then
    -- Pending but never marked: a claim was interrupted. The run never began.
    returned.push(base, id, entry, call)
    events.note(call.lines, 'returned', id)
    report.recovered[#report.recovered + 1] = id
  else
    if id and not exists(base .. ':job:' .. id) then record.lost(base, id, call) end
    events.note(call.lines, 'dropped', id or '', 'missing')
  end
  forget_unknown(base, row[2])
  return true
end

-- Check one step of the pending list of `fifo`. Return the cursor of the next step, '' at the end.
local function sweep_step(base, from, outage, max_stalled, call, report, call_budget)
  local stream = base .. ':fifo'
  local rows, shortest = pending(stream, from), call.seen.shortest_lease or SHORTEST_LEASE_MS
  for _, row in ipairs(rows) do
    -- Most runs are healthy. They cost no command, because no lease is shorter than `shortest`.
    local idle = row[3] >= shortest and lease.counted(row[3], outage) or 0
    if idle >= shortest then
      sweep_row(base, row, idle, max_stalled, call, report)
      if is_enough(call_budget, call) then return '(' .. row[1] end
    elseif row[3] == 0 then
      -- Delivered in this millisecond, or at an instant that is in the future because the clock was set back: the
      -- server reports that as 0 too. In both cases its time counts from now.
      redis.pcall('XCLAIM', stream, GROUP, row[2], 0, row[1], 'JUSTID')
    end
  end
  return #rows == STEP and '(' .. rows[STEP][1] or ''
end

-- Check the pending list of `fifo` in steps until the budget is spent. Return the cursor of the next call, '' at the
-- end.
local function sweep_stream(base, from, outage, max_stalled, call, report, call_budget)
  local steps = 0
  repeat
    from = sweep_step(base, from == '' and '-' or from, outage, max_stalled, call, report, call_budget)
    steps = steps + 1
  until from == '' or steps == MOST_STEPS or is_enough(call_budget, call)
  call_budget.has_worked = true
  return from
end

-- The same for the runs outside of `fifo`.
local function sweep_runs(base, from, outage, max_stalled, call, report, call_budget)
  local shortest, steps = call.seen.shortest_lease or SHORTEST_LEASE_MS, 0
  repeat
    local rows, worker, passed, read, is_last = runs.old_ones(base, from, STEP, shortest, call.now)
    if not worker then return '' end
    local ended = 0
    for _, row in ipairs(rows) do
      local idle = lease.counted(row[3], outage)
      if idle >= shortest then
        if sweep_row(base, row, idle, max_stalled, call, report) then ended = ended + 1 end
        if is_enough(call_budget, call) then return digits(worker) .. ' ' .. digits(passed + row.at - ended) end
      end
    end
    from = is_last and digits(worker + 1) .. ' 0' or digits(worker) .. ' ' .. digits(passed + read - ended)
    steps, call_budget.has_worked = steps + 1, true
  until steps == MOST_STEPS or is_enough(call_budget, call)
  return from
end

-- Remove consumers that have nothing pending and gave no sign of life for long. After an outage, wait until the live
-- ones have renewed: a removed consumer is not woken any more.
local function forget_dead(base, outage, call)
  if outage.settled < HEARD_OF_MS then return end
  local dead = redis.call('ZRANGEBYSCORE', base .. ':alive', '-inf', call.now - FORGET_AFTER_MS, 'LIMIT', 0, STEP)
  for _, consumer in ipairs(dead) do
    if #pending(base .. ':fifo', '-', consumer) == 0 and runs.count_of(base, consumer) == 0 then
      stalled.forget(base, consumer, call)
    end
  end
end

function stalled.forget(base, consumer, call)
  forget_names(base, consumer)
  redis.call('ZREM', base .. ':alive', consumer)
  redis.call('HDEL', base .. ':workers', consumer)
  wakeup.leave(base, consumer, call)
end

-- Fail one expired job. The jobs in `later` are stored whenever the policy changes: the last job's policy is the one
-- that remains.
local function expire(base, id, later, call)
  finish.fail(base, id, locations.leave(base, id, call), 'expired', call, later)
  if #later < 2 then return later end
  local last = table.remove(later)
  finish.store(base, later, call)
  return {last, [last.state .. last.policy] = last}
end

-- Return true if an expired job was not claimed. It has a record then.
local function is_unclaimed(base, id, call)
  local state = record.location(base, id)
  if state then return locations.is_unstarted(state) end
  local raw, fields
  state, raw, fields = plain.look(base, id)
  if state ~= 'waiting' then return false end
  plain.add_record(base, id, state, raw, fields, nil, call.seen)
  return true
end

-- Fail some expired jobs that no worker claimed. Return true if none is left.
local function expire_waiting(base, call, call_budget)
  local ids = redis.call('ZRANGEBYSCORE', base .. ':expiry', '-inf', call.now, 'LIMIT', 0, STEP)
  local later, over = {}, #ids < STEP
  for i, id in ipairs(ids) do
    if i > 1 and is_enough(call_budget, call) then
      over = false
      break
    end
    if is_unclaimed(base, id, call) then
      later = expire(base, id, later, call)
    else
      redis.call('ZREM', base .. ':expiry', id)
    end
  end
  finish.store(base, later, call)
  return over
end

-- Return `leaves`: true if a step has left work. The call has worked then.
local function leaves_work(call_budget, leaves)
  call_budget.has_worked = call_budget.has_worked or leaves
  return leaves
end

-- Return true if a call should leave the other pieces to the next call. A call that has done nothing yet continues,
-- because the calls of a slow server would otherwise never finish a sweep.
local function may_end(call_budget, call)
  return call_budget.has_worked and is_enough(call_budget, call)
end

-- Do the rest in pieces. Return true if all of it is done.
local function housekeeping(base, outage, call, call_budget)
  repeat
    if may_end(call_budget, call) then return false end
  until not leaves_work(call_budget, finish.release_held(base, call.now, TRIM_STEP) >= TRIM_STEP)
  repeat
    if may_end(call_budget, call) then return false end
  until not leaves_work(call_budget, finish.trim_all(base, call.now, call.seen, TRIM_STEP) >= TRIM_STEP)
  repeat
    if may_end(call_budget, call) then return false end
  until not leaves_work(call_budget, call.seen.expiry and not expire_waiting(base, call, call_budget))
  local function counted(idle) return lease.counted(idle, outage) end
  repeat
    if may_end(call_budget, call) then return false end
  until not leaves_work(call_budget, stopping.expire(base, counted, EXPIRE_STEP, call) >= EXPIRE_STEP)
  if call.seen.limits then limits.forget_gate(base, call) end
  if call.seen.pauses then redis.call('ZREMRANGEBYSCORE', base .. ':pauses', '-inf', digits(call.now)) end
  forget_dead(base, outage, call)
  return true
end

-- Forget the shortest lease when no job runs, because its worker may be gone.
local function forget_lease(base)
  if runs.count(base) > 0 then return end
  redis.call('HDEL', base .. ':meta2', 'shortest_lease')
end

local function sweep(base, args)
  local max_stalled, interval = integer('max_stalled', args[3]), integer('interval', args[4])
  local gap = integer('gap', args[5])
  local meta, now = base .. ':meta2', clock.now()
  local state = redis.call('HMGET', meta, 'swept_at', 'sweep_stream', 'sweep_runs', 'sweep_rest')
  local swept_at = tonumber(state[1] or nil)
  if args[6] ~= '1' and swept_at and not clock.is_ahead(swept_at, now) and now - swept_at < interval then return {} end
  local call, report, call_budget = queue_flags.call(base), {recovered = {}, failed = {}}, budget.new()
  queue_flags.compare(base, call.seen)
  local outage = lease.sign_of_life(base, now, gap, false)
  local waited, others, left = state[2] or '', state[3] or '', state[4] == '1'
  local fresh = waited == '' and others == '' and not left
  set_back.mend(base, call, call_budget)
  if fresh or waited ~= '' then
    waited = sweep_stream(base, waited, outage, max_stalled, call, report, call_budget)
  end
  if fresh or others ~= '' then
    others = sweep_runs(base, others, outage, max_stalled, call, report, call_budget)
  end
  local is_mended = return_old_runs(base, call, call_budget)
  if fresh or left then left = not housekeeping(base, outage, call, call_budget) end
  redis.call('HSET', meta, 'swept_at', now, 'sweep_stream', waited, 'sweep_runs', others, 'sweep_rest',
    left and '1' or '')
  wakeup.finish(base, call)
  local due = schedulers.next(base)
  local more = left or not is_mended or waited ~= '' or others ~= ''
  if not more and call.seen.shortest_lease then forget_lease(base) end
  return {more and 1 or 0, report.recovered, report.failed, (call.seen.outbox or call.seen.flow_work) and 1 or 0,
    due and digits(math.max(0, due - call.now)) or ''}
end

local function close_worker(base, args)
  local consumer, call, call_budget, count, more = args[3], queue_flags.call(base), budget.new(), 0, 0
  local waited, others = pending(base .. ':fifo', '-', consumer), runs.rows_of_worker(base, consumer, STEP, call.now)
  for _, rows in ipairs({waited, others}) do
    if #rows == STEP then more = 1 end
    for i, row in ipairs(rows) do
      if i > 1 and is_enough(call_budget, call) then
        more = 1
        break
      end
      local id, _, entry = plain.record_pending(base, row, call)
      locations.give_up(base, row, call)
      if id and exists(base .. ':job:' .. id) then
        if redis.call('SISMEMBER', base .. ':revoking', id) == 1 then
          finish.fail(base, id, entry, 'revoked', call)
        else
          returned.push(base, id, entry, call)
          events.note(call.lines, 'returned', id)
          count = count + 1
        end
      elseif id then
        record.lost(base, id, call)
        events.note(call.lines, 'dropped', id, 'missing')
      end
    end
  end
  if more == 0 then
    stalled.forget(base, consumer, call)
    request.leave(base, consumer)
  end
  wakeup.finish(base, call)
  return {more, count}
end

request.register('sweep', sweep, {'allow-oom'})
request.register('closeWorker', close_worker, {'allow-oom'})
