-- limits: how many jobs may run at the same time, and how many may start in a window of time, for the whole queue.
-- keyed.lua uses the same arithmetic for each key.
--   limits  hash  of the queue: concurrency; rate_max, rate_ms (starts in any window of that length); gate (no job
--           starts before that instant, because a handler raised RateLimited)
--   rate    zset  the last starts: number -> started ms. It holds the starts in the window and, within KEPT and
--           KEPT_MS, older ones: a longer window that is set later counts them.
--   meta2   hash  limits: 1 while the first of these exists, 2 if it has max_waiting: adds are refused with FULL while
--                 as many jobs wait
-- A job that a limit holds back is not claimed. It is never among the running jobs while it waits.

local limits = {}
local KEPT = {queue = 1000, key = 50}
-- How long the queue keeps its starts. A key keeps its starts only for its window, because there may be many keys.
local KEPT_MS = 86400000
local FORGOTTEN_FROM = 50        -- starts that a call does not forget although nobody needs them
local LOOK_EVERY = 50            -- a call looks for starts to forget when their number passes a multiple of this
local MOST_FORGOTTEN = 2000      -- starts that a call forgets; it starts at most 1,000 jobs
local BOUNDED = '2'              -- the field `limits` of `meta2` if the number of waiting jobs is limited
local LONGEST_MS = 1e14          -- maximum length of a rate's window; servers refuse much later instants

do
  -- Until when a structure lives at least, by its store key, as far as this server has set that.
  local lives_until, n_known = {}, 0
  local MOST_KNOWN, LONGER_MS = 1000, 10000

  -- Let a structure live for `ms` from `now` on. is_new: the caller has created it, or may have.
  --
  -- A command for each start of a job would be a third of the cost of a window. So a structure lives longer than it
  -- must, and calls until shortly before its end need no command. Lua remembers this end. It may do so although a
  -- failover or a restart can lose it: a server that did not set the end itself does not know it and sets it again, and
  -- so does each call that creates the structure.
  function limits.live_for(key, ms, now, is_new)
    local known = not is_new and lives_until[key]
    if known and known >= now + ms then return end
    if not lives_until[key] then
      n_known = n_known + 1
      if n_known > MOST_KNOWN then lives_until, n_known = {}, 1 end
    end
    lives_until[key] = now + ms + LONGER_MS
    redis.call('PEXPIRE', key, digits(ms + LONGER_MS))
  end
end

-- Return how many more jobs may start in the window and, if none, when the next one may; and how many starts are before
-- the window. The window includes its last instant and not its first: a start at 0 ms leaves a window of 100 ms at 100
-- ms. Starts in the future were noted before the clock was set back and do not count. known: the number of stored
-- starts.
-- wanted, most: optional. If `wanted` jobs may start although all known starts count, no command is needed. The first
-- value then may be too low, and the third one is 0. With more than `most` known starts, this holds for most calls.
function limits.room(key, known, max, length, now, wanted, most)
  if wanted and known + wanted <= max and (known <= most or known % LOOK_EVERY >= wanted) then
    return max - known, nil, 0
  end
  local before = redis.call('ZCOUNT', key, '-inf', digits(now - length))
  local started, ahead = known - before, 0
  if started >= max then
    ahead = redis.call('ZCOUNT', key, '(' .. digits(now + clock.SLACK_MS), '+inf')
    started = started - ahead
  end
  if started < max then return max - started, nil, before end
  -- After the limit was lowered, several starts must leave the window before the next job may start.
  local at = -max - ahead
  local leaving = redis.call('ZRANGE', key, at, at, 'WITHSCORES')
  return 0, tonumber(leaving[2]) + length, before
end

-- Return the same first two values for `wanted` jobs, and forget old starts. For a call that may write. kept: how many
-- starts before the window to keep. The third value is the number of starts that are left.
function limits.window(key, known, max, length, now, wanted, kept)
  kept = kept or KEPT.key
  local left, at, before = limits.room(key, known, max, length, now, wanted, kept + FORGOTTEN_FROM)
  local over = before - kept
  -- Only in larger steps: otherwise every call would need one more command.
  if over > FORGOTTEN_FROM then
    known = known - redis.call('ZREMRANGEBYRANK', key, 0, math.min(over, MOST_FORGOTTEN) - 1)
  end
  return left, at, known
end

-- Keep the known starts for a longer window.
function limits.keep_starts(key, length)
  if length then redis.call('PEXPIRE', key, digits(length + 1000), 'GT') end
end

-- Note that n jobs start now. is_new: true if no starts may be stored yet.
function limits.note_starts(base, key, n, length, call, is_new)
  local now, members = call.added or digits(call.now), {}
  call.added = now
  if n == 1 then
    redis.call('ZADD', key, now, order.next(base, call))
  else
    for i = 1, n do members[2 * i - 1], members[2 * i] = now, order.next(base, call) end
    in_chunks('ZADD', key, nil, members)
  end
  limits.live_for(key, length + 1000, call.now, is_new)
end

-- Return the tokens in a bucket at `now`, in thousandths, and true if they are stored. bucket: { capacity, refill },
-- thousandths of a token (per second).
function limits.tokens_in(key, bucket, now)
  local kept = redis.call('HMGET', key, 'tokens', 'at')
  local at = tonumber(kept[2] or nil)
  if not kept[1] or clock.is_ahead(at, now) then return bucket.capacity, kept[1] and true end
  local tokens = kept[1] + math.floor(math.max(0, now - at) * bucket.refill / 1000)
  return tokens < bucket.capacity and tokens or bucket.capacity, true
end

-- Return how many of its tokens a bucket lacks to pay `cost`; 0 or less if it can pay. A full bucket pays a cost above
-- its capacity by going into debt: no job waits for ever, and the rate still holds.
function limits.lacking(bucket, tokens, cost)
  return math.min(cost, bucket.capacity) - tokens
end

-- Return when the bucket can pay `cost`: `now`, or later. tokens: how many it has now.
function limits.affordable_at(bucket, tokens, cost, now)
  local lacking = limits.lacking(bucket, tokens, cost)
  return lacking <= 0 and now or now + math.min(math.ceil(lacking * 1000 / bucket.refill), LONGEST_MS)
end

-- Let the bucket expire when it is full again.
local function expire_when_full(key, bucket, tokens, now, is_new)
  local until_full = math.min(math.ceil((bucket.capacity - tokens) * 1000 / bucket.refill), LONGEST_MS)
  limits.live_for(key, until_full + 1000, now, is_new)
end

-- Store the tokens that are left after a payment. is_new: none were stored.
function limits.set_tokens(key, bucket, tokens, call, is_new)
  local now = call.added or digits(call.now)
  call.added = now
  redis.call('HSET', key, 'tokens', digits(tokens), 'at', now)
  expire_when_full(key, bucket, tokens, call.now, is_new)
end

-- Extend the expiry of the tokens after the bucket was changed. A bucket that refills more slowly or has a larger
-- capacity is full later, and its tokens must not expire before.
function limits.keep_tokens(key, bucket, now)
  if bucket and exists(key) then expire_when_full(key, bucket, (limits.tokens_in(key, bucket, now)), now, true) end
end

-- Note in `meta2` that the queue has limits. An add reads only `meta2` to learn this.
function limits.note_use(base)
  if exists(base .. ':limits') then
    local bounded = redis.call('HEXISTS', base .. ':limits', 'max_waiting') == 1
    redis.call('HSET', base .. ':meta2', 'limits', bounded and BOUNDED or '1')
  else
    redis.call('HDEL', base .. ':meta2', 'limits')
  end
end

-- Return how many more jobs may run at the same time, and how many run.
function limits.run_room(base, concurrency)
  local running = runs.count(base) + redis.call('ZCARD', base .. ':stopping')
  return math.max(0, concurrency - running), running
end

-- Return true for the field `limits` of a queue with limits. For adds.
function limits.are_open(base, value)
  if value == BOUNDED then limits.check_waiting(base) end
  return true
end

-- Return how many of `slots` jobs the queue's own limits let start now. Sets in `call`: open_at, when more may start;
-- or full, if only the end of a run makes room.
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
    local rate = base .. ':rate'
    local left, at = limits.window(rate, redis.call('ZCARD', rate), tonumber(set[2]), tonumber(set[3]), call.now, slots,
      KEPT.queue)
    allowed, call.open_at = math.min(allowed, left), at
  end
  if set[1] then
    local left = limits.run_room(base, set[1])
    if left == 0 then call.full = true end
    allowed = math.min(allowed, left)
  end
  return allowed
end

-- Note the end of n runs. It makes room under a limit of the queue, so idle workers should wake up.
function limits.freed(n, call)
  if call.seen.limits then call.startable = call.startable + n end
end

-- Count the claimed jobs under the queue's rate.
function limits.started(base, n, call)
  if n == 0 or not call.seen.limits then return end
  local length = redis.call('HGET', base .. ':limits', 'rate_ms')
  if length then limits.note_starts(base, base .. ':rate', n, math.max(tonumber(length), KEPT_MS), call, true) end
end

-- Let no job of the queue start before `at`, because a handler raised RateLimited.
function limits.close_gate(base, at, call)
  local key = queue_flags.create(base, 'limits', call.seen)
  local before = tonumber(redis.call('HGET', key, 'gate') or 0)
  if at > before then redis.call('HSET', key, 'gate', digits(at)) end
  limits.note_use(base)
end

-- Remove a gate that is open again, so that claims do not read it any more.
function limits.forget_gate(base, call)
  local gate = tonumber(redis.call('HGET', base .. ':limits', 'gate') or nil)
  if not gate or gate > call.now then return end
  redis.call('HDEL', base .. ':limits', 'gate')
  limits.note_use(base)
end
