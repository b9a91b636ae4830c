-- keyed: jobs of one key start in order, and no more of them at once than the key allows (1 unless told otherwise).
--   keyq:{k}     zset  waiting jobs of the key: <16 digits of sequence><letter><id> -> priority inside the key;
--                      letter: what a claim has to read, see record.lua
--   running      hash  key -> how many jobs of it run; none of a key that is not in it
--   keyrest:{k}  set   jobs of the key that wait, in `scheduled`, for the next attempt; `resting` hash: id -> key
--   keyed        zset  all waiting keyed jobs: id -> sequence
--   ready        zset  keys of which a job can start now -> turn; served in turns, a served key goes to the end
--   sleeping     zset  keys of which a job could start but for an instant -> that instant
--   pauses       zset  paused keys -> end of the pause
--   key:{k}      hash  limits of the key (concurrency, rate_max, rate_ms, capacity, refill; the last two in thousandths
--                      of tokens); `key:` those of keys without their own; `limited` set: which of these exist
--   keyrate:{k}, keybucket:{k}  the starts of the last window; the tokens left (collect themselves)
-- Readiness: k stands in `ready` exactly if a job of it waits, it runs fewer than its limit, no pause, window or bucket
-- holds it, and, if it runs one at a time, none of it rests. In `sleeping` exactly if only pause, window or bucket do.
-- Whatever changes one of these says keyed.touch, and every function that may have, ends with keyed.review: no path can
-- forget a key. A record's route is "k <priority> <sequence, 0 before it first waits> <cost in thousandths> <key>".

local keyed = {}
local KEYS_AT_ONCE = 64
local KEYS_A_STEP = 200
local LETTER, MEMBER = 17, 18    -- where letter and id begin in a member of a line
local READ = {i = 'fi', o = 'fo', h = 'h'}

function keyed.parse(route)
  local priority, sequence, cost, key = string.match(route, '^k (%d+) (%d+) (%d+) (.*)$')
  return {priority = priority, sequence = sequence, cost = cost, key = key}
end

function keyed.format(route)
  return 'k ' .. route.priority .. ' ' .. route.sequence .. ' ' .. route.cost .. ' ' .. route.key
end

-- The route of a keyed job; nil for any other and for one without a record.
function keyed.route_of(base, id)
  local text = redis.call('HGET', base .. ':job:' .. id, 'route')
  return text and string.sub(text, 1, 1) == 'k' and keyed.parse(text) or nil
end

function keyed.touch(call, key)
  local touched = call.touched
  if not touched then
    touched = {}
    call.touched = touched
  end
  if not touched[key] then
    touched[key] = true
    touched[#touched + 1] = key
  end
end

do
  local FIELDS = {'concurrency', 'rate_max', 'rate_ms', 'capacity', 'refill'}

  local NONE = {}

  local function read(base, key, common)
    local own = redis.call('HMGET', base .. ':key:' .. key, unpack(FIELDS))
    if not own[2] then own[2], own[3] = common[2], common[3] end
    if not own[4] then own[4], own[5] = common[4], common[5] end
    return {
      concurrency = tonumber(own[1] or common[1] or nil),
      max = tonumber(own[2] or nil), length = tonumber(own[3] or nil),
      bucket = own[4] and {capacity = tonumber(own[4]), refill = tonumber(own[5])},
    }
  end

  -- The limits that hold for a key, as numbers or nil; what the key does not say, the default does. No call changes
  -- limits after it has asked for one, so each is read once a call.
  function keyed.limits_of(base, key, call)
    if not call.seen.limited then return NONE end
    local known = call.key_limits
    if not known then
      known = {common = redis.call('HMGET', base .. ':key:', unpack(FIELDS)), keys = {}}
      call.key_limits = known
    end
    local found = known.keys[key]
    if not found then
      found = read(base, key, known.common)
      known.keys[key] = found
    end
    return found
  end
end

local function cost_of_first(base, queue)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local route = keyed.route_of(base, string.sub(first, MEMBER))
  return route and tonumber(route.cost) or 0
end

-- The first instant at which pause, window and bucket let the first waiting job start.
local function open_at(base, key, limits_now, call)
  local at = call.now
  if call.seen.pauses then at = math.max(at, tonumber(redis.call('ZSCORE', base .. ':pauses', key) or 0)) end
  if limits_now.max then
    local _, free_at = limits.window(base .. ':keyrate:' .. key, limits_now.max, limits_now.length, call.now)
    at = math.max(at, free_at or at)
  end
  if limits_now.bucket then
    local cost = cost_of_first(base, base .. ':keyq:' .. key)
    at = math.max(at, limits.affordable_at(base .. ':keybucket:' .. key, limits_now.bucket, cost, call.now))
  end
  return at
end

-- How many more jobs of the key may run beside those that do.
function keyed.room(base, key, limits_now, call)
  local concurrency = limits_now.concurrency or 1
  local left = concurrency - (call.seen.running and redis.call('HGET', base .. ':running', key) or 0)
  if left > 0 and concurrency == 1 and call.seen.resting and exists(base .. ':keyrest:' .. key) then return 0 end
  return left
end

do
  local AT_ONCE = 16

  -- Which of these structures of keys exist, as a set. Mostly all of them do or none, which one EXISTS tells of many.
  local function existing(base, kind, keys)
    local found = {}
    for from = 1, #keys, AT_ONCE do
      local upto, names = math.min(from + AT_ONCE - 1, #keys), {}
      for i = from, upto do names[#names + 1] = base .. kind .. keys[i] end
      local count = redis.call('EXISTS', unpack(names))
      for i = from, upto do
        if count == #names or (count > 0 and exists(names[i - from + 1])) then found[keys[i]] = true end
      end
    end
    return found
  end

  -- How many more jobs of a key that has waiting ones may start now or, second answer, from when on; 0 for none.
  local function start_of(base, key, runs, call)
    local limits_now, left = keyed.limits_of(base, key, call), 1
    if call.seen.limited or call.seen.resting then
      left = keyed.room(base, key, limits_now, call)
    elseif runs then
      left = 0
    end
    return left, left > 0 and open_at(base, key, limits_now, call)
  end

  -- Look at every key that was touched and put it where it belongs: `ready`, `sleeping` or neither. The last thing a
  -- function does before it wakes workers or claims.
  function keyed.review(base, call)
    local touched, seen = call.touched, call.seen
    if not touched then return end
    call.touched = nil
    keyed.write_entered(base, call)
    local waiting, ready, not_ready, sleeping, awake = existing(base, ':keyq:', touched), {}, {}, {}, {}
    local running = next(waiting) and keyed.running(base, touched, call)
    for i, key in ipairs(touched) do
      local left, at = 0, false
      if waiting[key] then left, at = start_of(base, key, running and running[i], call) end
      if at == call.now then
        ready[#ready + 1], ready[#ready + 2] = order.next(base, call), key
        call.startable = call.startable
          + (left > 1 and math.min(left, redis.call('ZCARD', base .. ':keyq:' .. key)) or 1)
      else
        not_ready[#not_ready + 1] = key
      end
      if at and at > call.now then
        sleeping[#sleeping + 1], sleeping[#sleeping + 2] = digits(at), key
      else
        awake[#awake + 1] = key
      end
    end
    if seen.ready then in_chunks('ZREM', base .. ':ready', nil, not_ready) end
    if seen.sleeping then in_chunks('ZREM', base .. ':sleeping', nil, awake) end
    if ready[1] then
      in_chunks('ZADD', base .. ':ready', 'NX', ready)
      seen.ready = true
    end
    if sleeping[1] then
      in_chunks('ZADD', base .. ':sleeping', nil, sleeping)
      seen.sleeping, call.slept = true, true
    end
  end
end

-- Give a job that waits for the first time its sequence. Answers whether it got one.
function keyed.arrive(base, route, call)
  if route.sequence ~= '0' then return false end
  route.sequence = order.next(base, call)
  return true
end

-- Let a job wait in its key's line; a job that was there before takes its old place. Answers its place.
function keyed.enter(base, id, route, call, letter)
  local sequence = route.sequence
  redis.call('ZADD', base .. ':keyq:' .. route.key, route.priority, sequence .. letter .. id)
  local entered = call.entered or {}
  call.entered = entered
  entered[#entered + 1], entered[#entered + 2] = sequence, id
  keyed.touch(call, route.key)
  return 'key-waiting ' .. letter
end

-- `keyed` is written once a call, by its review or before a job leaves its line.
function keyed.write_entered(base, call)
  if call.entered then in_chunks('ZADD', base .. ':keyed', nil, call.entered) end
  call.entered = nil
end

-- Take a waiting job out of its key's line.
function keyed.leave(base, id, call)
  local kept = redis.call('HMGET', base .. ':job:' .. id, 'route', 'place')
  local route, letter = keyed.parse(kept[1]), string.sub(kept[2], -1)
  keyed.write_entered(base, call)
  redis.call('ZREM', base .. ':keyq:' .. route.key, route.sequence .. letter .. id)
  redis.call('ZREM', base .. ':keyed', id)
  keyed.touch(call, route.key)
end

-- How many jobs of each key run, false for none; nil if no keyed job of the queue does.
function keyed.running(base, keys, call)
  return call.seen.running and redis.call('HMGET', base .. ':running', unpack(keys)) or nil
end

-- Runs of these keys are over, however they ended. A key stands there as often as runs of it have ended; the caller
-- has made sure that each of them was running.
function keyed.release(base, keys, call)
  local hash, ended, names = base .. ':running', {}, {}
  for _, key in ipairs(keys) do
    if not ended[key] then names[#names + 1] = key end
    ended[key] = (ended[key] or 0) + 1
    keyed.touch(call, key)
  end
  local over = {}
  for i, count in ipairs(redis.call('HMGET', hash, unpack(names))) do
    local left = (count or 0) - ended[names[i]]
    if left > 0 then redis.call('HSET', hash, names[i], left) else over[#over + 1] = names[i] end
  end
  if over[1] then redis.call('HDEL', hash, unpack(over)) end
end

-- A job of the key that was taken cannot start: what it was charged goes back.
function keyed.refund(base, id, key, call)
  local limits_now = keyed.limits_of(base, key, call)
  if limits_now.max then redis.call('ZPOPMAX', base .. ':keyrate:' .. key) end
  local route = limits_now.bucket and keyed.route_of(base, id)
  if route then redis.call('HINCRBY', base .. ':keybucket:' .. key, 'tokens', route.cost) end
end

-- The job waits in `scheduled` for its next attempt, and at one at a time its key with it.
function keyed.rest(base, id, key, call)
  redis.call('SADD', base .. ':keyrest:' .. key, id)
  redis.call('HSET', base .. ':resting', id, key)
  call.seen.resting = true
  keyed.touch(call, key)
end

-- A job leaves `scheduled`: if it rested, it does no more.
function keyed.wake_up(base, id, call)
  local key = call.seen.resting and redis.call('HGET', base .. ':resting', id)
  if not key then return end
  redis.call('HDEL', base .. ':resting', id)
  redis.call('SREM', base .. ':keyrest:' .. key, id)
  keyed.touch(call, key)
end

-- Keys whose instant has come; they stand in `ready` after the next review. Answers whether there may be more of them.
function keyed.promote(base, call)
  if not call.seen.sleeping then return false end
  local keys = redis.call('ZRANGEBYSCORE', base .. ':sleeping', '-inf', digits(call.now), 'LIMIT', 0, KEYS_A_STEP)
  for _, key in ipairs(keys) do keyed.touch(call, key) end
  return #keys == KEYS_A_STEP
end

function keyed.pause(base, key, at, call)
  local pauses = base .. ':pauses'
  local before = tonumber(redis.call('ZSCORE', pauses, key) or 0)
  if at > before then redis.call('ZADD', pauses, digits(at), key) end
  call.seen.pauses = true
  keyed.touch(call, key)
end

-- A member that left its line.
local function note_taken(out, member, key)
  local n = #out.ids + 1
  out.ids[n], out.keys[n], out.whats[n] = string.sub(member, MEMBER), key, READ[string.sub(member, LETTER, LETTER)]
end

local take_first

do
  -- Longer than any list may hold.
  local FILLER = '--------------------------------------------------------------------------------------------------'

  -- Keys of which none ran run one job each.
  local function note_started(base, keys, call)
    local hash, started = base .. ':running', {}
    for i, key in ipairs(keys) do started[2 * i - 1], started[2 * i] = key, '1' end
    -- A small hash is a list, and walked once for each key that a call asks for. One long value makes it a table, and
    -- that it stays.
    if not call.seen.running then redis.call('HSET', hash, SEP, FILLER) end
    redis.call('HSET', hash, unpack(started))
    if not call.seen.running then redis.call('HDEL', hash, SEP) end
    call.seen.running = true
  end

  -- The first job of each of these keys, which have no limits: each then waits for the end of that run.
  function take_first(base, popped, call, out)
    local names, started = {}, {}
    for i = 1, #popped, 2 do names[#names + 1] = popped[i] end
    local running = keyed.running(base, names, call)
    for i, key in ipairs(names) do
      -- Limits that are no more may have let several of a key run.
      local first = not (running and running[i]) and redis.call('ZPOPMIN', base .. ':keyq:' .. key)[1]
      if first then
        note_taken(out, first, key)
        started[#started + 1] = key
      else
        keyed.touch(call, key)
      end
    end
    if started[1] then note_started(base, started, call) end
  end
end

-- Up to n jobs of a key with limits that is ready, moved to its running ones.
local function take(base, key, n, call, out)
  local limits_now = keyed.limits_of(base, key, call)
  local queue = base .. ':keyq:' .. key
  n = math.min(n, keyed.room(base, key, limits_now, call))
  if limits_now.max then
    n = math.min(n, (limits.window(base .. ':keyrate:' .. key, limits_now.max, limits_now.length, call.now)))
  end
  local bucket, paid, taken = limits_now.bucket, base .. ':keybucket:' .. key, 0
  while taken < n do
    if bucket then
      if redis.call('ZCARD', queue) == 0 then break end
      local cost = cost_of_first(base, queue)
      if limits.affordable_at(paid, bucket, cost, call.now) > call.now then break end
      limits.pay(paid, bucket, cost, call.now)
    end
    -- Without a bucket all are taken at once.
    local popped = redis.call('ZPOPMIN', queue, bucket and 1 or n)
    for i = 1, #popped, 2 do
      note_taken(out, popped[i], key)
      taken = taken + 1
    end
    if not bucket then break end
  end
  if taken > 0 then
    redis.call('HINCRBY', base .. ':running', key, taken)
    call.seen.running = true
  end
  if limits_now.max and taken > 0 then
    limits.note_starts(base, base .. ':keyrate:' .. key, taken, limits_now.length, call)
  end
  -- A key that runs one at a time waits for the end of that run.
  if limits_now.concurrency or taken == 0 then keyed.touch(call, key) end
end

-- Take up to `count` jobs, key by key in turn. Answers { ids, keys, whats }, for each the reading of its record.
function keyed.pop(base, count, call)
  local out = {ids = {}, keys = {}, whats = {}}
  while #out.ids < count do
    local left = count - #out.ids
    local popped = redis.call('ZPOPMIN', base .. ':ready', math.min(left, KEYS_AT_ONCE))
    if #popped == 0 then break end
    if call.seen.limited then
      local share = math.max(1, math.floor(left * 2 / #popped))
      for i = 1, #popped, 2 do take(base, popped[i], math.min(share, count - #out.ids), call, out) end
    else
      take_first(base, popped, call, out)
    end
    keyed.review(base, call)
  end
  in_chunks('ZREM', base .. ':keyed', nil, out.ids)
  return out
end
