-- limits: how many jobs may run at once, and how many may start in a time; of the whole queue, and the arithmetic that
-- keyed.lua uses for each key.
--   limits  hash  of the queue: concurrency; rate_max, rate_ms (starts in any window of that length); gate (nothing
--                 starts before that instant: a handler said RateLimited)
--   rate    zset  the starts of the last window: number -> started ms
-- A limited job is not claimed; it never stands among the running while it waits.

local limits = {}

-- How many more may start in the window, and when the next one may if that is none. The window holds its last instant
-- and not its first: a start at 0 ms leaves a window of 100 ms at 100 ms.
function limits.window(key, max, length, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now - length))
  local started = redis.call('ZCARD', key)
  if started < max then return max - started end
  -- After a lowered limit several starts must leave the window before the next one.
  local leaving = redis.call('ZRANGE', key, started - max, started - max, 'WITHSCORES')
  return 0, tonumber(leaving[2]) + length
end

function limits.note_starts(base, key, n, length, call)
  local members = {}
  for i = 1, n do
    members[2 * i - 1] = digits(call.now)
    members[2 * i] = digits(order.next(base, call))
  end
  in_chunks('ZADD', key, nil, members)
  redis.call('PEXPIRE', key, length + 1000)
end

-- The tokens in a bucket by now, in thousandths.
local function tokens_in(key, bucket, now)
  local kept = redis.call('HMGET', key, 'tokens', 'at')
  if not kept[1] then return bucket.capacity end
  return math.min(bucket.capacity, tonumber(kept[1]) + math.floor((now - kept[2]) * bucket.refill / 1000))
end

-- When the bucket can pay `cost`: `now`, or later. A cost above the capacity is paid by a full bucket, into debt: so
-- no job waits for ever and the rate still holds. bucket: { capacity, refill }, thousandths of a token (a second).
function limits.affordable_at(key, bucket, cost, now)
  local missing = math.min(cost, bucket.capacity) - tokens_in(key, bucket, now)
  return missing <= 0 and now or now + math.ceil(missing * 1000 / bucket.refill)
end

function limits.pay(key, bucket, cost, now)
  local left = tokens_in(key, bucket, now) - cost
  redis.call('HSET', key, 'tokens', digits(left), 'at', digits(now))
  redis.call('PEXPIRE', key, math.ceil((bucket.capacity - left) * 1000 / bucket.refill) + 1000)
end

-- How many of `slots` jobs the queue's own limits let start now. Notes in `call`: open_at, when more may start; or
-- full, if only the end of a run makes room.
function limits.allowance(base, slots, call)
  call.open_at, call.full = nil, nil
  if not call.seen.limits then return slots end
  local set = redis.call('HMGET', base .. ':limits', 'concurrency', 'rate_max', 'rate_ms', 'gate')
  local allowed, gate = slots, tonumber(set[4] or 0)
  if gate > call.now then
    call.open_at = gate
    return 0
  end
  if set[2] then
    local left, at = limits.window(base .. ':rate', tonumber(set[2]), tonumber(set[3]), call.now)
    allowed, call.open_at = math.min(allowed, left), at
  end
  if set[1] then
    local running = entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane')
    local left = math.max(0, set[1] - running)
    if left == 0 then call.full = true end
    allowed = math.min(allowed, left)
  end
  return allowed
end

-- Count what was claimed under the queue's rate.
function limits.started(base, n, call)
  if n == 0 or not call.seen.limits then return end
  local length = redis.call('HGET', base .. ':limits', 'rate_ms')
  if length then limits.note_starts(base, base .. ':rate', n, tonumber(length), call) end
end

-- A run ended without a settle: under a limit of the queue that makes room for one more.
function limits.run_ended(call)
  if call.seen.limits then call.startable = call.startable + 1 end
end

-- A handler was told by somebody outside to wait: nothing of the queue starts before then.
function limits.close_gate(base, at, call)
  local key = base .. ':limits'
  local before = tonumber(redis.call('HGET', key, 'gate') or 0)
  if at > before then redis.call('HSET', key, 'gate', digits(at)) end
  call.seen.limits = true
end
