-- keyed: jobs of one ordering key. They start in order, and no more of them run at the same time than the key allows
-- (default: 1).
--   keyq:{k}     zset  the line of the key, its waiting jobs: <16 digits of sequence><read hint><id> -> priority inside
--                the key; read hint: see record.lua
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

local keyed = {}
local KEYS_A_STEP = 25
local MOST_TOUCHED = 25
local MEMBER = 18                -- where the id begins in a member of a line
local LOCATION = {i = 'key-waiting i', o = 'key-waiting o', h = 'key-waiting h', c = 'key-waiting c'}
local HINT, COMPACT = 17, 99     -- where the read hint begins in a member of a line; 'c'

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

-- Return true if the review of a key reads more than the number of its running jobs. It then takes some 40 us.
function keyed.is_costly(seen)
  return seen.limited or seen.resting or seen.pauses
end

-- Return true if the call has keys to review.
function keyed.has_review(call)
  return call.touched or call.ended
end

-- Return true if a call that works in steps should end, because the review at its end may be costly.
function keyed.has_touched_many(call)
  return #(call.touched or {}) >= MOST_TOUCHED
end

do
  local FIELDS = {'concurrency', 'rate_max', 'rate_ms', 'capacity', 'refill'}

  local NONE = {}

  -- Return limits as numbers; a limit that is not set is nil.
  local function parsed(raw)
    return {
      concurrency = tonumber(raw[1] or nil),
      max = tonumber(raw[2] or nil), length = tonumber(raw[3] or nil),
      bucket = raw[4] and {capacity = tonumber(raw[4]), refill = tonumber(raw[5])},
    }
  end

  -- Return the limits of a key that has limits of its own. The default applies where it has none.
  local function read(base, key, common)
    local own = redis.call('HMGET', base .. ':key:' .. key, unpack(FIELDS))
    if not own[1] then own[1] = common[1] end
    if not own[2] then own[2], own[3] = common[2], common[3] end
    if not own[4] then own[4], own[5] = common[4], common[5] end
    return parsed(own)
  end

  -- Read the limits of these keys, for keyed.limits_of. Most keys have only the default, and one command finds the
  -- others. No call changes limits after it has read them, so each is read once per call.
  function keyed.read_limits(base, keys, call)
    if not call.seen.limited then return end
    local known, unread = call.key_limits, {}
    if not known then
      local common = redis.call('HMGET', base .. ':key:', unpack(FIELDS))
      known = {common = common, default = parsed(common), keys = {}}
      call.key_limits = known
    end
    for _, key in ipairs(keys) do
      if not known.keys[key] then unread[#unread + 1] = key end
    end
    if not unread[1] then return end
    for i, own in ipairs(redis.call('SMISMEMBER', base .. ':limited', unpack(unread))) do
      local key = unread[i]
      known.keys[key] = own == 1 and read(base, key, known.common) or known.default
    end
  end

  -- Return the limits of a key, as numbers or nil.
  function keyed.limits_of(base, key, call)
    if not call.seen.limited then return NONE end
    local known = call.key_limits and call.key_limits.keys[key]
    if known then return known end
    keyed.read_limits(base, {key}, call)
    return call.key_limits.keys[key]
  end
end

-- Return the tokens that a job in a line takes from its key's bucket.
function keyed.cost_of(base, member)
  if string.byte(member, HINT) == COMPACT then return compact.COST end
  local route = keyed.route_of(base, string.sub(member, MEMBER))
  return route and tonumber(route.cost) or 0
end

-- Return the instants at which the pause, the window and the bucket of a key let its first waiting job start; nil for
-- each that does not hold it back.
function keyed.opens(base, key, limits_now, call)
  local pause, window, bucket
  if call.seen.pauses then pause = tonumber(redis.call('ZSCORE', base .. ':pauses', key) or nil) end
  if limits_now.max then
    local _, free_at = limits.room(base .. ':keyrate:' .. key, limits_now.max, limits_now.length, call.now, 1,
      math.huge)
    window = free_at
  end
  if limits_now.bucket then
    local cost = keyed.cost_of(base, redis.call('ZRANGE', base .. ':keyq:' .. key, '0', '0')[1])
    bucket = limits.affordable_at(base .. ':keybucket:' .. key, limits_now.bucket, cost, call.now)
  end
  return pause, window, bucket
end

-- Return the first instant at which pause, window and bucket let the first waiting job start.
local function open_at(base, key, limits_now, call)
  local pause, window, bucket = keyed.opens(base, key, limits_now, call)
  return math.max(call.now, pause or 0, window or 0, bucket or 0)
end

-- Return how many jobs of these keys run, by key.
function keyed.running_counts(base, keys, call)
  local counts, found = {}, {}
  if call.seen.running and keys[1] then found = redis.call('HMGET', base .. ':running', unpack(keys)) end
  for i, key in ipairs(keys) do counts[key] = tonumber(found[i] or 0) end
  return counts
end

-- Return how many more jobs of the key may run in addition to the running ones.
function keyed.room(base, key, limits_now, running, call)
  local concurrency = limits_now.concurrency or 1
  local left = concurrency - running
  if left > 0 and concurrency == 1 and call.seen.resting and exists(base .. ':keyrest:' .. key) then return 0 end
  return left
end

do
  local AT_ONCE = 16

  -- Note which of the touched keys have waiting jobs. Usually all of them do or none does. One EXISTS then finds that
  -- for many keys.
  local function note_waiting(base, touched)
    local unknown, names = {}, {}
    for i = 1, #touched do
      local key = touched[i]
      if not touched[key] then unknown[#unknown + 1], names[#names + 1] = key, base .. ':keyq:' .. key end
    end
    for from = 1, #unknown, AT_ONCE do
      local last = math.min(from + AT_ONCE - 1, #unknown)
      local count = redis.call('EXISTS', unpack(names, from, last))
      for i = from, last do
        touched[unknown[i]] = count == last - from + 1 or (count > 0 and exists(names[i]))
      end
    end
  end

  -- Return how many jobs of the touched keys run, by key, as far as the review needs to know that. released: the keys
  -- that have no running jobs any more.
  local function running_among(base, touched, released, call)
    local asked = {}
    if not call.seen.running then return asked end
    for _, key in ipairs(touched) do
      if touched[key] and not (released and released[key]) then asked[#asked + 1] = key end
    end
    return keyed.running_counts(base, asked, call)
  end

  -- Return how many more jobs of a key may run, and, unless this is 0, the instant from which they may start.
  local function start_of(base, key, running, call)
    local limits_now = keyed.limits_of(base, key, call)
    local left = keyed.room(base, key, limits_now, running, call)
    return left, left > 0 and open_at(base, key, limits_now, call)
  end

  -- Return how many waiting jobs of a key may start, if `left` more may run.
  local function startable_in(base, key, left)
    return math.min(left, redis.call('ZCARD', base .. ':keyq:' .. key))
  end

  local function note_ready(base, ready, seen)
    -- Calls review a few keys with limits at a time, and such keys often stay in `ready` while their jobs run.
    local widen = not seen.ready and #ready >= 2 * (seen.limited and MANY or AT_ONCE)
    local key = queue_flags.create(base, 'ready', seen)
    if widen then redis.call('ZADD', key, '0', WIDENER) end
    in_chunks('ZADD', key, 'NX', ready)
    if widen then redis.call('ZREM', key, WIDENER) end
  end

  -- Put the keys that have waiting jobs into `ready`. No job of these keys runs, and no key has limits, rests or is
  -- paused.
  local function review_ended(base, keys, call)
    local prefix, ready, not_ready, n, seen = base .. ':keyq:', {}, {}, 0, call.seen
    for from = 1, #keys, AT_ONCE do
      local last, names = math.min(from + AT_ONCE - 1, #keys), {}
      for i = from, last do names[i - from + 1] = prefix .. keys[i] end
      local count = redis.call('EXISTS', unpack(names))
      for i = from, last do
        if count == last - from + 1 or (count > 0 and exists(names[i - from + 1])) then
          ready[n + 1], ready[n + 2], n = order.next(base, call), keys[i], n + 2
        elseif seen.ready then
          not_ready[#not_ready + 1] = keys[i]
        end
      end
    end
    call.startable = call.startable + n / 2
    in_chunks('ZREM', base .. ':ready', nil, not_ready)
    if seen.sleeping then in_chunks('ZREM', base .. ':sleeping', nil, keys) end
    if n > 0 then note_ready(base, ready, seen) end
  end

  -- Put every touched key into `ready`, `sleeping` or neither. A function calls this last, before it wakes workers or
  -- claims.
  function keyed.review(base, call)
    local touched, seen, ended = call.touched, call.seen, call.ended
    if ended then
      call.ended = nil
      review_ended(base, ended, call)
    end
    if not touched then return end
    keyed.write_entered(base, call)
    note_waiting(base, touched)
    local running = running_among(base, touched, call.released, call)
    call.touched, call.released = nil, nil
    local ready, not_ready, sleeping, awake = {}, {}, {}, {}
    local now, simple, startable = call.now, not keyed.is_costly(seen), call.startable
    if not simple then keyed.read_limits(base, touched, call) end
    -- If no worker is idle, no call wakes one, so only the first job of each key is counted.
    local has_idle = not simple and exists(base .. ':idle')
    for i = 1, #touched do
      local key = touched[i]
      local waits, left, at = touched[key], 0, false
      if not waits then
        at = false
      elseif not simple then
        left, at = start_of(base, key, running[key] or 0, call)
      elseif (running[key] or 0) == 0 then
        left, at = 1, now
      end
      if at == now then
        local n = #ready
        ready[n + 1], ready[n + 2] = waits ~= true and waits or order.next(base, call), key
        startable = startable + (left > 1 and has_idle and startable_in(base, key, left) or 1)
      elseif seen.ready then
        not_ready[#not_ready + 1] = key
      end
      if at and at > now then
        sleeping[#sleeping + 1], sleeping[#sleeping + 2] = digits(at), key
      elseif seen.sleeping then
        awake[#awake + 1] = key
      end
    end
    call.startable = startable
    in_chunks('ZREM', base .. ':ready', nil, not_ready)
    in_chunks('ZREM', base .. ':sleeping', nil, awake)
    if ready[1] then note_ready(base, ready, seen) end
    if sleeping[1] then
      in_chunks('ZADD', queue_flags.create(base, 'sleeping', seen), nil, sleeping)
      call.slept = true
    end
  end
end

-- Give a job that waits for the first time its sequence. Return true if it got one.
function keyed.arrive(base, route, call)
  if route.sequence ~= '0' then return false end
  route.sequence = order.next(base, call)
  return true
end

local function join_line(base, id, key, priority, sequence, call, hint)
  redis.call('ZADD', base .. ':keyq:' .. key, priority, sequence .. hint .. id)
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
function keyed.enter(base, id, route, call, hint)
  keyed.touch(call, route.key, true)
  return join_line(base, id, route.key, route.priority, route.sequence, call, hint)
end

-- Return the route of a job that is being added, from its options.
function keyed.first_route(extra, sequence, added)
  local priority, cost = extra.priority, extra.cost
  return 'k ' .. (priority and digits(priority) or '0') .. ' ' .. sequence .. ' ' .. (cost and digits(cost) or '1000')
    .. ' ' .. added .. ' ' .. extra.key
end

-- Put a job that is being added into its line. Return its location and its route.
function keyed.enter_first(base, id, extra, added, call, hint)
  local sequence, key = order.next(base, call), extra.key
  keyed.touch(call, key, sequence)
  return join_line(base, id, key, extra.priority or '0', sequence, call, hint),
    extra.alone and 'k 0 ' .. sequence .. ' 1000 ' .. added .. ' ' .. key or keyed.first_route(extra, sequence, added)
end

-- Write `keyed` once per call: in its review, or before a job leaves its line.
function keyed.write_entered(base, call)
  local entered, key = call.entered, base .. ':keyed'
  if not entered then return end
  call.entered = nil
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
  redis.call('ZREM', base .. ':keyq:' .. route.key, route.sequence .. hint .. id)
  redis.call('ZREM', base .. ':keyed', id)
  keyed.touch(call, route.key)
end

do
  -- Without limits, a key with running jobs has exactly one.
  local function release_all(base, keys, call)
    local released = call.released or {}
    call.released = released
    for _, key in ipairs(keys) do
      keyed.touch(call, key)
      released[key] = true
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
    in_chunks('HDEL', base .. ':running', nil, keys)
    call.seen.running = exists(base .. ':running')
    local ended = call.ended
    if not ended then
      call.ended = keys
      return
    end
    for _, key in ipairs(keys) do ended[#ended + 1] = key end
  end

  -- Note that runs of these keys have ended, for any reason. `keys` names a key once for each run. The caller has
  -- verified that each of these runs was active: an extra release would let two jobs of a key run at the same time.
  function keyed.release(base, keys, call)
    if not call.seen.limited then return release_all(base, keys, call) end
    local hash, ended, names = base .. ':running', {}, {}
    for _, key in ipairs(keys) do
      if not ended[key] then names[#names + 1] = key end
      ended[key] = (ended[key] or 0) + 1
      keyed.touch(call, key)
    end
    local over, lower = {}, {}
    for i, count in ipairs(redis.call('HMGET', hash, unpack(names))) do
      local left, n = (count or 0) - ended[names[i]], #lower
      if left > 0 then lower[n + 1], lower[n + 2] = names[i], digits(left) else over[#over + 1] = names[i] end
    end
    if lower[1] then redis.call('HSET', hash, unpack(lower)) end
    if over[1] then
      redis.call('HDEL', hash, unpack(over))
      forget_limits(base, call)
    end
  end
end

-- Refund the tokens of a claimed job that cannot start, and its start in the window.
function keyed.refund(base, id, key, call)
  local limits_now = keyed.limits_of(base, key, call)
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
