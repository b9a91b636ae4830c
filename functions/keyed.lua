-- keyed: jobs of one ordering key. They start in order, and no more of them run at the same time than the key allows
-- (default: 1).
--   key_lines, keyq:{k}, keyz:{k}  the lines of the keys, which are their waiting jobs in order; see key_lines.lua
--   running      hash  key -> number of its running jobs; a key without running jobs is absent
--   keyrest:{k}  set   jobs of the key that wait, in `scheduled`, for their next attempt; `resting` hash: id -> key
--   keyed        zset  all waiting keyed jobs: id -> sequence
--   ready        zset  keys that can start a job now -> turn; served in turns, a served key goes to the end
--   sleeping     zset  keys that can start a job at a later instant -> that instant
--   pauses       zset  paused keys -> end of the pause
--   meta2        hash  key_limits: 1 from the first limit of a key until no key has limits and no keyed job runs.
--                Without it, no key runs more than one job.
--   key:{k}      hash  limits of the key (concurrency, rate_max, rate_ms, capacity, refill; the last two in thousandths
--                of tokens); `key:` the default for keys without their own limits; `limited` set: the keys that have
--                such a hash
--   keyrate:{k}, keybucket:{k}  the starts in the last window; the tokens left (both expire)
-- A record's route is "k <priority> <sequence, 0 before it first waits> <cost in thousandths> <added at, ms> <key>".
--
-- The index and how it stays correct. Claims read only `ready` and `sleeping`, never the lines of all keys. If a key is
-- missing there, its jobs never start. This is therefore the invariant of the file:
--   ready     contains k exactly if a job of it waits, fewer of its jobs run than its limit, no pause, window or bucket
--             holds it back, and, if it runs one job at a time, none of its jobs waits for its next attempt.
--   sleeping  contains k exactly if only a pause, a window or a bucket holds it back.
-- Many paths change one of these conditions: adds, claims, settles, retries, removals, lost leases, changed limits.
-- None of them updates the index itself. Each calls keyed.touch for the key, and every function that may have touched a
-- key ends with keyed.review, which derives the right index of each touched key from the stored data. To add a path,
-- touch the key and end with the review; do not write `ready` or `sleeping` directly. (A claim pops keys from `ready`.
-- It touches the keys that can start more jobs; the others are touched when their run ends.)
-- A review costs a tenth of the life of a job or more. Two changes leave the index as it is and need none: the end of a
-- run of a key that could run more jobs before (keyed.release), and a job that is added behind others of a key with a
-- window or a bucket (keyed.skips_reviews). The keys of keyed.note_freed get a shorter review.

local keyed = {}
local KEYS_A_STEP = 25
local MOST_TOUCHED = 25
local LOCATION = {i = 'key-waiting i', o = 'key-waiting o', h = 'key-waiting h', c = 'key-waiting c'}

function keyed.parse(route)
  local priority, sequence, cost, added, key = string.match(route, '^k (%d+) (%d+) (%d+) (%d+) (.*)$')
  return {priority = priority, sequence = sequence, cost = cost, added = added, key = key}
end

-- Return when a keyed job was added, from its route; nil for any other job.
function keyed.added_of(route)
  return string.match(route, '^k %d+ %d+ %d+ (%d+) ')
end

function keyed.format(route)
  return 'k ' .. route.priority .. ' ' .. route.sequence .. ' ' .. route.cost .. ' ' .. route.added .. ' ' .. route.key
end

-- Return the parsed route of a keyed job; nil for any other job, and for one that does not exist.
function keyed.route_of(base, id)
  local text = redis.call('HGET', base .. ':job:' .. id, 'route') or compact.route_of(base, id)
  return text and string.sub(text, 1, 1) == 'k' and keyed.parse(text) or nil
end

-- Return the key of the keyed job that runs under a token. If the job has lost its record, the run has the key. Return
-- nil if there is neither.
function runs.key_of(base, id, token)
  local route = keyed.route_of(base, id)
  if route then return route.key end
  local member = runs.find(base, token)
  return member and select(3, runs.parts_of(member))
end

-- Mark a key for the next review. waits: a job has just entered its line, so the review need not check that; for a new
-- job, its sequence, which also serves as the key's turn.
function keyed.touch(call, key, waits)
  local touched = call.touched
  if not touched then
    touched = {}
    call.touched = touched
  end
  if touched[key] == nil then touched[#touched + 1] = key end
  touched[key] = waits and touched[key] or waits or false
end

-- Return the lists of the new jobs without other options, which a call adds to lines. They replace keyed.touch and
-- key_lines.join, whose calls for each job are a third of the work of such an add.
--   keys   the key of each job
--   lines  { key member }…, see key_lines.append
--   ready  { turn key }…
function keyed.fresh_of(call)
  local fresh = call.fresh
  if not fresh then
    fresh = {keys = {}, lines = {}, ready = {}}
    call.fresh = fresh
  end
  return fresh
end

-- Return true if the review of a key reads more than the number of its running jobs. It then takes some 40 us.
function keyed.is_costly(seen)
  return seen.limited or seen.resting or seen.pauses
end

-- Return true if the call has keys to review.
function keyed.has_review(call)
  return call.touched or call.ended or call.fresh or call.freed
end

-- Return true if a call that works in steps should end, because the review at its end may be costly.
function keyed.has_touched_many(call)
  return #(call.touched or {}) >= MOST_TOUCHED
end

-- Return how many jobs of these keys run, by key. Each number is read once per call.
function keyed.running_counts(base, keys, call)
  local counts, unknown = call.counts, {}
  if not counts then
    counts = {}
    call.counts = counts
  end
  for i = 1, #keys do
    local key = keys[i]
    if not counts[key] then unknown[#unknown + 1] = key end
  end
  if not unknown[1] then return counts end
  local found = call.seen.running and redis.call('HMGET', base .. ':running', unpack(unknown)) or {}
  for i = 1, #unknown do counts[unknown[i]] = tonumber(found[i] or 0) end
  return counts
end

-- Note that a ready key may start several jobs, so that the review counts them as startable. If no worker is idle, no
-- call wakes one, so only the first job of each key is counted.
function keyed.note_several(base, key, left, call)
  if call.has_idle == nil then call.has_idle = exists(base .. ':idle') end
  if not call.has_idle then return end
  local several = call.several or {}
  several[key], call.several = left, several
end

-- Give a job that waits for the first time its sequence. Return true if it got one.
function keyed.arrive(base, route, call)
  if route.sequence ~= '0' then return false end
  route.sequence = order.next(base, call)
  return true
end

-- priority: see key_lines.join
local function join_line(id, key, priority, sequence, call, hint)
  key_lines.join(call, key, priority, sequence .. hint .. id)
  local entered = call.entered
  if not entered then
    entered = {}
    call.entered = entered
  end
  local n = #entered
  entered[n + 1], entered[n + 2] = sequence, id
  return LOCATION[hint]
end

-- Put a job into its key's line. A job that was in the line before gets its old position. Return its location.
function keyed.enter(id, route, call, hint)
  keyed.touch(call, route.key, true)
  return join_line(id, route.key, route.priority, route.sequence, call, hint)
end

-- Return the route of a job that is being added, from its options.
function keyed.first_route(extra, sequence, added)
  local priority, cost = extra.priority, extra.cost
  return 'k ' .. (priority and digits(priority) or '0') .. ' ' .. sequence .. ' ' .. (cost and digits(cost) or '1000')
    .. ' ' .. added .. ' ' .. extra.key
end

-- Put a job that is being added into its line. Return its location and its route.
function keyed.enter_first(base, id, extra, added, call, hint)
  local sequence, key, priority = order.next(base, call), extra.key, extra.priority
  keyed.touch(call, key, sequence)
  return join_line(id, key, priority and digits(priority) or false, sequence, call, hint),
    extra.alone and 'k 0 ' .. sequence .. ' 1000 ' .. added .. ' ' .. key or keyed.first_route(extra, sequence, added)
end

-- Write `keyed` and the lines once per call: in its review, or before a job leaves its line.
function keyed.write_entered(base, call)
  local entered, key = call.entered, base .. ':keyed'
  if not entered then return end
  call.entered = nil
  if call.fresh then keyed.write_fresh(base, call) end
  key_lines.write(base, call)
  local widen = #entered >= 2 * MANY
  if widen then redis.call('ZADD', key, '0', WIDENER) end
  in_chunks('ZADD', key, nil, entered)
  if widen then redis.call('ZREM', key, WIDENER) end
end

-- Take a waiting job out of its key's line.
function keyed.leave(base, id, call)
  local kept = redis.call('HMGET', base .. ':job:' .. id, 'route', 'place')
  local route, hint = keyed.parse(kept[1]), string.sub(kept[2], -1)
  keyed.write_entered(base, call)
  key_lines.remove(base, route.key, route.sequence .. hint .. id)
  redis.call('ZREM', base .. ':keyed', id)
  keyed.touch(call, route.key)
end

-- Mark keys for the next review that may run more jobs now. All keys have the same limits, and none rests or is paused.
function keyed.note_freed(keys, call)
  local ended = call.ended
  if not ended then
    call.ended = keys
    return
  end
  for i = 1, #keys do ended[#ended + 1] = keys[i] end
end

do
  -- Without limits, a key with running jobs has exactly one.
  local function release_all(base, keys, call)
    local counts = call.counts or {}
    call.counts = counts
    for _, key in ipairs(keys) do
      keyed.touch(call, key)
      counts[key] = 0
    end
    in_chunks('HDEL', base .. ':running', nil, keys)
    call.seen.running = exists(base .. ':running')
  end

  -- Without limits, no key runs several jobs from here on.
  local function forget_limits(base, call)
    call.seen.running = exists(base .. ':running')
    if call.seen.running or exists(base .. ':limited') then return end
    redis.call('HDEL', base .. ':meta2', 'key_limits')
    call.seen.limited = nil
  end

  -- Note that runs of these keys have completed, as keyed.release does. If no key has limits, rests or is paused, this
  -- costs less: a key runs one job at a time, so none of these keys has another run.
  function keyed.release_completed(base, keys, call)
    if keyed.is_costly(call.seen) then return keyed.release(base, keys, call) end
    call.counts = nil
    in_chunks('HDEL', base .. ':running', nil, keys)
    call.seen.running = exists(base .. ':running')
    keyed.note_freed(keys, call)
  end

  -- Return how many runs of each key ended, and the keys.
  local function counted(keys)
    local ended, names = {}, {}
    for i = 1, #keys do
      local key = keys[i]
      local n = ended[key]
      if not n then names[#names + 1] = key end
      ended[key] = (n or 0) + 1
    end
    return ended, names
  end

  -- Write how many jobs of these keys run, flat, and which keys have no running jobs any more.
  local function write_counts(base, lower, over, call)
    if lower[1] then redis.call('HSET', base .. ':running', unpack(lower)) end
    if over[1] then
      redis.call('HDEL', base .. ':running', unpack(over))
      forget_limits(base, call)
    end
  end

  -- Note that runs of these keys have ended, for any reason. `keys` names a key once for each run. The caller has
  -- verified that each of these runs was active: an extra release would let two jobs of a key run at the same time.
  --
  -- The end of a run changes the index only if the key ran as many jobs as it may. Otherwise it could start more jobs
  -- before, and only its window, its bucket or a pause decides when.
  function keyed.release(base, keys, call)
    if not call.seen.limited then return release_all(base, keys, call) end
    local ended, names = counted(keys)
    local counts, same = keyed.running_counts(base, names, call), keyed.read_limits(base, names, call)
    local known, over, lower, n = call.key_limits, {}, {}, 0
    local freed = keyed.are_alike(same, call.seen) and {}
    for i = 1, #names do
      local key = names[i]
      local count, most = counts[key], (same or known.keys[key]).concurrency
      local left = count - ended[key]
      if count >= most or left < 0 then
        if freed and left < most then freed[#freed + 1] = key else keyed.touch(call, key) end
        if freed and most - left > 1 then keyed.note_several(base, key, most - left, call) end
      end
      if left > 0 then
        counts[key], lower[n + 1], lower[n + 2], n = left, key, digits(left), n + 2
      else
        counts[key], over[#over + 1] = 0, key
      end
    end
    if freed then keyed.note_freed(freed, call) end
    write_counts(base, lower, over, call)
  end
end

-- Refund the tokens of a claimed job that cannot start, and its start in the window.
function keyed.refund(base, id, key, call)
  keyed.touch(call, key)
  local limits_now = keyed.limits_of(base, key, call)
  call.starts, call.tokens = nil, nil
  if limits_now.max then redis.call('ZPOPMAX', base .. ':keyrate:' .. key) end
  local route = limits_now.bucket and keyed.route_of(base, id)
  if route then redis.call('HINCRBY', base .. ':keybucket:' .. key, 'tokens', route.cost) end
end

-- Note that the job waits in `scheduled` for its next attempt. If its key runs one job at a time, the key waits with
-- it.
function keyed.rest(base, id, key, call)
  redis.call('SADD', base .. ':keyrest:' .. key, id)
  redis.call('HSET', queue_flags.create(base, 'resting', call.seen), id, key)
  keyed.touch(call, key)
end

-- Remove a job that leaves `scheduled` from the resting jobs of its key.
function keyed.wake_up(base, id, call)
  local key = call.seen.resting and redis.call('HGET', base .. ':resting', id)
  if not key then return end
  redis.call('HDEL', base .. ':resting', id)
  redis.call('SREM', base .. ':keyrest:' .. key, id)
  keyed.touch(call, key)
end

-- Put the keys whose instant has come into `ready`. The caller ends with a review. Return true if there may be more of
-- them. A review takes each of these keys out of `sleeping` or gives it a later instant, so the loop ends.
function keyed.promote(base, call)
  if not call.seen.sleeping then return false end
  repeat
    local keys = redis.call('ZRANGEBYSCORE', base .. ':sleeping', '-inf', digits(call.now), 'LIMIT', 0, KEYS_A_STEP)
    for _, key in ipairs(keys) do keyed.touch(call, key) end
    if #keys < KEYS_A_STEP then return false end
    keyed.review(base, call)
  until budget.has_settled_enough(call.budget)
  return true
end

function keyed.pause(base, key, at, call)
  local pauses = queue_flags.create(base, 'pauses', call.seen)
  local before = tonumber(redis.call('ZSCORE', pauses, key) or 0)
  if at > before then redis.call('ZADD', pauses, digits(at), key) end
  keyed.touch(call, key)
end
