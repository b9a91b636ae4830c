-- keyed_limits: reads the limits of keys, and decides how many jobs of a key may start, and when. keyed.lua describes
-- the structures.

local MEMBER = 18                -- where the id begins in a member of a line
local HINT, COMPACT = 17, 99     -- where the read hint begins in a member of a line; 'c'

local NO_KEYS = {}

do
  local FIELDS = {'concurrency', 'rate_max', 'rate_ms', 'capacity', 'refill'}

  local NONE = {concurrency = 1}

  -- Return limits as numbers. max, length and bucket are nil if they are not set. is_timed: a window or a bucket may
  -- hold the key back.
  local function parsed(raw)
    return {
      concurrency = tonumber(raw[1] or nil) or 1,
      max = tonumber(raw[2] or nil), length = tonumber(raw[3] or nil),
      bucket = raw[4] and {capacity = tonumber(raw[4]), refill = tonumber(raw[5])},
      is_timed = (raw[2] or raw[4]) and true,
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

  -- Return true if every key has the default limits. `limited` is then empty, or it has one member, the empty text,
  -- which is there while default limits are set.
  local function are_uniform(base)
    local found = redis.call('SSCAN', base .. ':limited', '0', 'COUNT', '2')
    local names = found[2]
    return found[1] == '0' and #names <= 1 and (names[1] or '') == ''
  end

  -- Return the limits that a call knows. No call changes limits after it has read them, so each is read once per call.
  local function known_of(base, call)
    local known = call.key_limits
    if not known then
      local common = redis.call('HMGET', base .. ':key:', unpack(FIELDS))
      known = {common = common, default = parsed(common), keys = {}, uniform = are_uniform(base)}
      call.key_limits = known
    end
    return known
  end

  -- Read the limits of these keys, for keyed.limits_of. Most keys have only the default, and one command finds the
  -- others. Return the limits of all keys if these are the same, otherwise nil.
  function keyed.read_limits(base, keys, call)
    if not call.seen.limited then return NONE end
    local known, unread = known_of(base, call), {}
    if known.uniform then return known.default end
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
    local same = keyed.read_limits(base, {key}, call)
    return same or call.key_limits.keys[key]
  end
end

-- Return true if all keys have the same limits, and no key rests or is paused. limits_now: of keyed.read_limits.
function keyed.are_alike(limits_now, seen)
  return limits_now and not (seen.resting or seen.pauses)
end

-- Return the limits of all keys if these are the same and include a window or a bucket, otherwise nil.
function keyed.timed_limits(base, call)
  local same = call.seen.limited and keyed.read_limits(base, NO_KEYS, call)
  return same and same.is_timed and same or nil
end

-- Return true if an add should look whether its jobs come first in their lines. Other jobs do not change whether and
-- when their key may start a job, and looking costs less than reviewing a key with a window or a bucket. If a worker is
-- idle, the review also finds how many jobs are startable.
function keyed.skips_reviews(base, call)
  if not keyed.timed_limits(base, call) then return false end
  if call.has_idle == nil then call.has_idle = exists(base .. ':idle') end
  return not call.has_idle
end

-- Return true if no job of the key may start because one of them waits for its next attempt.
function keyed.is_resting(base, key, limits_now, seen)
  return limits_now.concurrency == 1 and seen.resting and exists(base .. ':keyrest:' .. key)
end

-- Return how many more jobs of the key may run in addition to the running ones.
function keyed.room(base, key, limits_now, running, call)
  local left = limits_now.concurrency - running
  if left > 0 and keyed.is_resting(base, key, limits_now, call.seen) then return 0 end
  return left
end

-- Return the tokens that a job in a line takes from its key's bucket.
function keyed.cost_of(base, member)
  if string.byte(member, HINT) == COMPACT then return compact.COST end
  local route = keyed.route_of(base, string.sub(member, MEMBER))
  return route and tonumber(route.cost) or 0
end

-- Return how many starts of a key are stored. Each number is read once per call. So are the tokens.
function keyed.starts_of(base, key, call)
  local starts = call.starts
  if not starts then
    starts = {}
    call.starts = starts
  end
  local known = starts[key]
  if not known then
    known = redis.call('ZCARD', base .. ':keyrate:' .. key)
    starts[key] = known
  end
  return known
end

-- Return the tokens in the bucket of a key, and true if none are stored.
function keyed.tokens_of(base, key, bucket, call)
  local tokens = call.tokens
  if not tokens then
    tokens = {}
    call.tokens = tokens
  end
  local known = tokens[key]
  if known then return known, false end
  local found, stored = limits.tokens_in(base .. ':keybucket:' .. key, bucket, call.now)
  if stored then tokens[key] = found end
  return found, not stored
end

-- Return the instant at which the window of a key lets its first waiting job start, nil if that is now.
local function window_opens(base, key, limits_now, call)
  local known, max = keyed.starts_of(base, key, call), limits_now.max
  if known < max then return nil end
  local _, free_at = limits.room(base .. ':keyrate:' .. key, known, max, limits_now.length, call.now)
  return free_at
end

-- Do the same for its bucket. A full bucket pays for any job.
local function bucket_opens(base, key, bucket, call)
  local tokens = keyed.tokens_of(base, key, bucket, call)
  if tokens >= bucket.capacity then return nil end
  local cost = keyed.cost_of(base, key_lines.range(base, key, 0, 1)[1])
  local at = limits.affordable_at(bucket, tokens, cost, call.now)
  return at > call.now and at or nil
end

-- Return the instants at which the pause, the window and the bucket of a key let its first waiting job start; nil for
-- each that does not hold it back.
function keyed.opens(base, key, limits_now, call)
  local pause, window, bucket
  if call.seen.pauses then pause = tonumber(redis.call('ZSCORE', base .. ':pauses', key) or nil) end
  if limits_now.max then window = window_opens(base, key, limits_now, call) end
  if limits_now.bucket then bucket = bucket_opens(base, key, limits_now.bucket, call) end
  return pause, window, bucket
end

-- Return the first instant at which pause, window and bucket let the first waiting job start.
function keyed.open_at(base, key, limits_now, call)
  local pause, window, bucket = keyed.opens(base, key, limits_now, call)
  if not (pause or window or bucket) then return call.now end
  return math.max(call.now, pause or 0, window or 0, bucket or 0)
end
