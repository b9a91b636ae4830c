-- wakeup: push, not poll. Workers with free slots stand in `idle`; who makes jobs startable wakes just enough of them.
--   idle   zset  consumer -> free slots, written by the claim that found nothing, removed by the wake
--   timer  hash  first, second: the idle workers that sleep until the next due instant
--   channel "<base>:wake:<consumer>" (sharded): "w" claim now, "x <entry>" that lease is gone, "r <id>" that job was
--   revoked, "e" echo
-- A publish that nobody received means a dead worker: it is dropped and the next one is woken.

local wakeup = {}
local SECOND_LATER_MS = 100

local function tell(base, consumer, word)
  return redis.call('SPUBLISH', base .. ':wake:' .. consumer, word) > 0
end
wakeup.tell = tell

function wakeup.paused(base)
  return redis.call('HGET', base .. ':meta', 'paused') == '1'
end

-- Wake workers with at least n free slots between them, those with most of them first.
function wakeup.wake(base, n)
  local key = base .. ':idle'
  while n > 0 do
    local popped = redis.call('ZPOPMAX', key)
    if not popped[1] then return end
    if tell(base, popped[1], 'w') then n = n - tonumber(popped[2]) end
  end
end

local function is_idle(base, consumer)
  return consumer and redis.call('ZSCORE', base .. ':idle', consumer)
end

-- The score of the first delayed job, or nil.
function wakeup.next_due(base)
  local head = redis.call('ZRANGE', base .. ':scheduled', 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2])
end

-- Register a worker that found nothing; answers the instant it should wake itself (0: somebody else does).
function wakeup.register(base, consumer, slots, seen)
  redis.call('ZADD', base .. ':idle', slots, consumer)
  if seen.paused or not seen.scheduled then return 0 end
  local due = wakeup.next_due(base)
  if not due then return 0 end
  local timer = base .. ':timer'
  local holders = redis.call('HMGET', timer, 'first', 'second')
  local first, second = holders[1], holders[2]
  if first == consumer or not is_idle(base, first) then
    redis.call('HSET', timer, 'first', consumer)
    if second == consumer then redis.call('HDEL', timer, 'second') end
    return due
  end
  if second == consumer or not is_idle(base, second) then
    redis.call('HSET', timer, 'second', consumer)
    return due + SECOND_LATER_MS
  end
  return 0
end

-- A timer must be set or set anew: wake one idle worker, the holder if it is there, so that it registers again.
local function retime(base, consumer)
  local holder = redis.call('HGET', base .. ':timer', 'first')
  if (holder and holder == consumer) or (is_idle(base, holder) and tell(base, holder, 'w')) then return end
  for _, idle in ipairs(redis.call('ZRANGE', base .. ':idle', 0, 9)) do
    if idle == consumer or tell(base, idle, 'w') then return end
    redis.call('ZREM', base .. ':idle', idle)
  end
end

-- Call after adding to `scheduled`: `before` is next_due() of before, `consumer` the caller if it claims in this call.
function wakeup.due_changed(base, before, consumer, seen)
  if seen.paused then return end
  local due = wakeup.next_due(base)
  if due and (not before or due < before) then retime(base, consumer) end
end

-- The worker has no free slot (or goes away): it is not idle, and a timer it held passes on.
function wakeup.leave(base, consumer, seen)
  redis.call('ZREM', base .. ':idle', consumer)
  if not seen.scheduled then return end
  local timer = base .. ':timer'
  local holder = redis.call('HGET', timer, 'first')
  -- The one that was told to take over may be leaving too: whoever leaves last sees to it that somebody holds it.
  if holder and holder ~= consumer and is_idle(base, holder) then return end
  redis.call('HDEL', timer, 'first')
  if wakeup.next_due(base) then retime(base, consumer) end
end

-- After a claim that left the caller this many free slots: idle with them, or not idle at all.
function wakeup.settle_down(base, caller, free, seen)
  if free > 0 and caller.subscribed then return wakeup.register(base, caller.consumer, free, seen) end
  if caller.registered then wakeup.leave(base, caller.consumer, seen) end
  return free > 0 and not seen.paused and seen.scheduled and wakeup.next_due(base) or 0
end
