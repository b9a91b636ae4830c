-- compact_pushes: starts an added compact job on an idle worker without a claim call. compact.lua describes these jobs.
-- push.lua describes the message and its rules.
-- An add with one such job pushes it if a claim would start this job first.
-- The call publishes the message before it claims the job. If no worker receives the message, the job waits as before.

-- Return true if the job is the first one of its structure. For a keyed job, its key is the next one, and has no other
-- waiting job.
local function is_first(base, name, id, key)
  local at = name == 'lifo' and '-1' or '0'
  if redis.call('ZRANGE', base .. ':' .. name, at, at)[1] ~= (key or id) then return false end
  return not key or key_lines.length(base, key) == 1
end

-- Return true if a claim of the worker would start this job before all others outside of `fifo`, and the worker may
-- start it now. name: of the structure in which the job waits.
local function may_push(base, consumer, name, id, key, seen, call)
  if seen.returned or seen.limits or push.holds_timer(base, consumer, seen) then return false end
  if seen.lifo and name ~= 'lifo' or seen.ready and name ~= 'ready' then return false end
  if call.has_own_lease or (key and keyed.is_costly(call.seen)) then return false end
  return is_first(base, name, id, key) and push.is_near(base .. ':wake:' .. consumer)
end

-- Prepare the push of a compact job, which is the only job of an add. number, lock: of push.accepting; seen: the
-- structures in CONCERNS of push.lua that exist. Return what push.prepare does.
function push.prepare_compact(base, consumer, number, lock, seen, call)
  local id, line, name = call.alone[1], call.alone[2], call.alone_in
  local key = name == 'ready' and keyed.parse(compact.head_of(line)).key or nil
  if not may_push(base, consumer, name, id, key, seen, call) then return nil end
  local rows = push.read_new(base, consumer, 1)
  if rows then
    push.undo(base, rows)
    return nil
  end
  local batch = {ids = {id}, keys = key and {key}}
  local token, jobs = compact_claims.token_of(base, batch.keys, call), {}
  claimed_rows.put_lines(jobs, token, id, {line})
  return {message = 'p' .. number .. ' ' .. digits(call.now) .. ' ' .. cmsgpack.pack(jobs), batch = batch,
    token = token, lock = lock}
end

-- Take the job out of the structure in which it waits.
local function take(base, name, id, call)
  if name == 'ready' then
    keyed_claim.pop(base, 1, call)
  elseif name == 'lifo' then
    redis.call('ZREM', base .. ':lifo', id)
  else
    redis.call('ZREM', base .. ':prioritized', id)
  end
end

-- Store the push of a compact job that was published.
function push.confirm_compact(base, consumer, pushed, call)
  local id = pushed.batch.ids[1]
  take(base, call.alone_in, id, call)
  compact_claims.write(base, consumer, pushed.batch, pushed.token, pushed.lock, call)
  push.note(base, consumer, {claim_tokens.series(pushed.token, id)}, pushed.lock, call)
end
