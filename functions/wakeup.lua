-- wakeup: sends wake-ups, so that workers need not poll. Workers with free slots are members of `idle`. A call that
-- makes jobs startable wakes only as many of them as it needs.
--   idle   zset  consumer -> free slots; a claim that found nothing adds its worker, a wake-up removes it
--   timer  hash  first, second: the idle workers that sleep until the next due instant; due: when the first wakes up
--   channel "<base>:wake:<consumer>" (sharded), with these messages:
--     "w"          claim now                            "p…", "j…"   jobs that start now, see push.lua
--     "x <entry>"  the lease of this run is gone        "r <entry>"  the job of this run was revoked
--     "e"          echo                                 "s"          a fire time of a job scheduler was set
--     "c <command>"  a command of an operator, see tellWorker
--     "n"          a notice, see notices.lua
-- A publish without a receiver means a dead worker: it is removed from `idle`, and the next one is woken.
-- A publish that the server refuses (the caller's user lacks the channels) costs only the wake-up: the worker stays in
-- `idle` and finds the job at its next poll. The publish comes after writes, so it must not raise.

local wakeup = {}
local SECOND_LATER_MS = 100
local MOST_DEAD = 200            -- maximum number of dead workers that one call finds; the next call continues

-- Publish a message on the channel of a worker. Return the number of receivers; nil when the caller may not publish.
function wakeup.publish(channel, message)
  local heard = redis.pcall('SPUBLISH', channel, message)
  if type(heard) == 'number' then return heard end
  return nil
end

-- The same, by the name of the worker.
function wakeup.send(base, consumer, message)
  return wakeup.publish(base .. ':wake:' .. consumer, message)
end
local send = wakeup.send

function wakeup.paused(base)
  return queue_flags.is_paused(redis.call('HGET', base .. ':meta2', 'paused'), clock.now())
end

-- Push jobs to an idle worker, or wake it. Return the number of receivers of the message; nil when the caller may not
-- publish.
local function call_up(base, consumer, slots, n, call)
  local pushed = call and push.prepare(base, consumer, math.min(slots, n), call)
  local heard = send(base, consumer, pushed and pushed.message or 'w')
  if pushed and heard and heard > 0 then
    push.confirm(base, consumer, pushed, call)
  elseif pushed and pushed.rows then
    push.undo(base, pushed.rows)
  end
  return heard
end

-- Wake workers with at least n free slots in total, those with the most slots first. call: of an add, which may push.
function wakeup.wake(base, n, call)
  local key, dead = base .. ':idle', 0
  while n > 0 and dead < MOST_DEAD do
    local popped = redis.call('ZPOPMAX', key)
    if not popped[1] then return end
    local slots = tonumber(popped[2])
    local heard = call_up(base, popped[1], slots, n, call)
    if not heard then
      redis.call('ZADD', key, popped[2], popped[1])
      return
    end
    if heard > 0 then n = n - slots else dead = dead + 1 end
  end
end

local function is_idle(base, consumer)
  return consumer and redis.call('ZSCORE', base .. ':idle', consumer)
end

local function head(key)
  local first = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- Return the next instant at which a claim could find more than it does now, or nil. A paused queue returns the next
-- instant of a promotion or the end of its pause.
function wakeup.next_due(base, call)
  local seen = call.seen
  if call.full then return nil end
  local open_at = not seen.paused and call.open_at
  if open_at and locations.ready_count(base) > 0 then return open_at end
  local due = seen.scheduled and head(base .. ':scheduled')
  local awake = seen.sleeping and head(base .. ':sleeping')
  if awake and (not due or awake < due) then due = awake end
  local deadline = seen.suspended and head(base .. ':suspended')
  if deadline and deadline < (due or clock.NEVER) then due = deadline end
  if due and open_at then due = math.max(due, open_at) end
  if seen.paused and seen.paused ~= true then due = math.min(due or seen.paused, seen.paused) end
  return due or nil
end

-- Register a worker that found nothing. Return the instant at which it should wake itself (0: it will be woken).
function wakeup.register(base, consumer, slots, call)
  redis.call('ZADD', base .. ':idle', digits(slots), consumer)
  local due = wakeup.next_due(base, call)
  local timer = base .. ':timer'
  if not due then
    -- No worker sleeps until a due time, so `timer` must not name one.
    if call.seen.timer then redis.call('UNLINK', timer) end
    return 0
  end
  local holders = redis.call('HMGET', timer, 'first', 'second', 'due')
  local first, second = holders[1], holders[2]
  if first == consumer or not is_idle(base, first) or tonumber(holders[3]) > due then
    redis.call('HSET', queue_flags.create(base, 'timer', call.seen), 'first', consumer, 'due', digits(due))
    if second == consumer then redis.call('HDEL', timer, 'second') end
    return due
  end
  if second == consumer or not is_idle(base, second) then
    redis.call('HSET', timer, 'second', consumer)
    return due + SECOND_LATER_MS
  end
  return 0
end

-- Set or move the timer: wake one idle worker, preferably the holder, so that it registers again. consumer: the caller
-- if it registers in this call, which is enough; nil otherwise.
local function retime(base, consumer)
  local holder = redis.call('HGET', base .. ':timer', 'first')
  if (holder and holder == consumer) or (is_idle(base, holder) and send(base, holder, 'w') ~= 0) then return end
  for _, idle in ipairs(redis.call('ZRANGE', base .. ':idle', 0, MOST_DEAD - 1)) do
    if idle == consumer or send(base, idle, 'w') ~= 0 then return end
    redis.call('ZREM', base .. ':idle', idle)
  end
end

-- The next due instant may be earlier now. Make sure that an idle worker sleeps until then and no longer. consumer: the
-- caller, if it claims and registers in this call.
function wakeup.due_changed(base, consumer, call)
  local due = wakeup.next_due(base, call)
  if not due then return end
  local timer = redis.call('HMGET', base .. ':timer', 'first', 'due')
  if is_idle(base, timer[1]) and tonumber(timer[2]) <= due then return end
  retime(base, consumer)
end

-- Note that the worker has no free slot, or signs off. It is not idle any more, and another worker takes over its
-- timer.
function wakeup.leave(base, consumer, call)
  redis.call('ZREM', base .. ':idle', consumer)
  local seen = call.seen
  if not (seen.timer or seen.scheduled or seen.sleeping or seen.suspended or seen.limits) then return end
  local timer = base .. ':timer'
  local holder = redis.call('HGET', timer, 'first')
  -- The worker that was woken to take over may be leaving too. The last worker to leave makes sure that one holds the
  -- timer.
  if holder and holder ~= consumer and is_idle(base, holder) then return end
  redis.call('UNLINK', timer)
  if wakeup.next_due(base, call) then retime(base, consumer) end
end

-- Register the caller as idle with the slots that its claim left free, or as not idle.
function wakeup.settle_down(base, caller, free, call)
  if free > 0 and caller.subscribed then return wakeup.register(base, caller.consumer, free, call) end
  if caller.registered then wakeup.leave(base, caller.consumer, call) end
  return free > 0 and wakeup.next_due(base, call) or 0
end

-- The last step of a function that changed something and does not claim: review keys, wake workers for startable jobs,
-- set the timer for future ones, and write the events.
function wakeup.finish(base, call)
  if call.seen.flow_work then wakeup.advance_flows(base, call) end    -- see flows.lua
  keyed.review(base, call)
  local seen = call.seen
  if seen.posted or seen.flow_work then wakeup.wake(base, 1) end    -- a worker relays
  -- While limits of the queue let nothing start, a timer for the opening is all that is needed.
  if not seen.paused then
    local startable = call.startable > 0 and limits.allowance(base, call.startable, call) or 0
    wakeup.wake(base, startable, call.args and call)
  end
  chunks.announce(base, call)
  if call.failures then failure_groups.write(base, call) end
  events.write(base, call)    -- after the pushes, which note the starts of their jobs
  if seen.scheduled or seen.sleeping or seen.suspended or call.open_at then wakeup.due_changed(base, nil, call) end
end
