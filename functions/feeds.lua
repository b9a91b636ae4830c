-- feeds: moves the messages of a topic into the queue of a subscription. The topic may be in another cluster slot.
--   openFeed   holder topic position most -> { status, position, room, epoch }
--     Become the worker that feeds the queue, for HOLD_MS. position: where a new subscription begins, '' if it is not
--     known. status "new": the subscription is new, and a position is missing; "held": another worker feeds. room: how
--     many jobs the queue may take until `most` wait. A repeated call has no second effect.
--   feedJobs   channel number holder position to lost most places n { id name data opts extra }*n incarnation
--              -> { status, position, room, epoch }
--     Add jobs as `addJob` does, and move the cursor from `position` to `to`, both or neither. status "moved": the
--     cursor is at another position, and nothing was added. lost: messages that were trimmed before they were read.
--     places: the position of each job, joined by commas. The call may end early; then the cursor is at the place of
--     its last job.
--   closeFeed  holder -> "ok"      The worker feeds no longer.
--   moveFeed   channel number position epoch -> "ok" | "new" | "late"
--     Continue from another position, with the epoch of rewindTopic. "new": the queue has no cursor yet, and will begin
--     there; "late": a later rewind has come first.
--   readFeed   -> { topic, position, lost, fed } | {}
--   feed  hash  cursor: a position, see topics.lua; topic: the base key of the topic; lost, fed: how many messages were
--         lost, and how many jobs were added; holder: "<until ms> <worker>"; epoch: of the last moveFeed
-- The jobs and the cursor are in one cluster slot and change in one call. So each message becomes one job, whichever
-- workers feed, die, or repeat a call. A holder exists only so that other workers do not read the same messages.

local HOLD_MS = 5000

-- Return how many more jobs may wait.
local function room(base, most)
  local waiting = locations.fifo_count(base)
  for _, name in ipairs({'returned', 'lifo', 'prioritized', 'keyed', 'scheduled'}) do
    waiting = waiting + redis.call('ZCARD', base .. ':' .. name)
  end
  return math.max(0, most - waiting)
end

local function held_by_another(text, holder, now)
  if not text then return false end
  local till, name = string.match(text, '^(%d+) (.*)$')
  till = tonumber(till)
  return name ~= holder and till > now and not clock.is_ahead(till - HOLD_MS, now)
end

local function check_position(text)
  if not string.find(text, '^%d+%-%d+ %d+$') then fail('ARGUMENT', 'not a position: ' .. text) end
end

register('openFeed', function(base, args)
  local key, holder, start, most = base .. ':feed', args[1], args[3], integer('most', args[4])
  queue_flags.require(base)
  if start ~= '' then check_position(start) end
  local now, feed = clock.now(), redis.call('HMGET', key, 'cursor', 'holder', 'epoch')
  if held_by_another(feed[2], holder, now) then return {'held', '', 0, 0} end
  local cursor = feed[1] or start
  if cursor == '' then return {'new', '', 0, 0} end
  local free = room(base, most)
  redis.call('HSET', key, 'cursor', cursor, 'topic', args[2], 'holder', digits(now + HOLD_MS) .. ' ' .. holder)
  return {'ok', cursor, free, tonumber(feed[3] or 0)}
end, {'allow-oom'})

-- Return the place with this number in the list.
local function place_at(list, number)
  local n = 0
  for place in string.gmatch(list, '[^,]+') do
    n = n + 1
    if n == number then return place end
  end
end

request.register('feedJobs', function(base, args)
  local key, holder, from, to = base .. ':feed', args[3], args[4], args[5]
  local lost, most, places, n = integer('lost', args[6]), integer('most', args[7]), args[8], integer('count', args[9])
  check_position(to)
  queue_flags.require(base)
  local feed = redis.call('HMGET', key, 'cursor', 'epoch')
  if feed[1] ~= from then return {'moved', '', 0, 0} end
  local call, last
  if n == 0 then
    call, last = queue_flags.call(base), 0
  else
    call, last = add.fed(base, add.parse(args, 9))
  end
  local reached = last < n and place_at(places, last) or to
  redis.call('HSET', key, 'cursor', reached, 'holder', digits(call.now + HOLD_MS) .. ' ' .. holder)
  if last > 0 then redis.call('HINCRBY', key, 'fed', digits(last)) end
  if lost > 0 then
    redis.call('HINCRBY', key, 'lost', digits(lost))
    events.note(call.lines, 'lost', '', digits(lost))
  end
  wakeup.finish(base, call)
  return {'ok', reached, room(base, most), tonumber(feed[2] or 0)}
end)

register('closeFeed', function(base, args)
  local key = base .. ':feed'
  local holder = redis.call('HGET', key, 'holder')
  if holder and string.match(holder, '^%d+ (.*)$') == args[1] then redis.call('HDEL', key, 'holder') end
  return 'ok'
end, {'allow-oom'})

request.register('moveFeed', function(base, args)
  local key = base .. ':feed'
  local epoch = integer('epoch', args[4])
  check_position(args[3])
  if not exists(key) then return 'new' end
  if epoch <= tonumber(redis.call('HGET', key, 'epoch') or 0) then return 'late' end
  redis.call('HSET', key, 'cursor', args[3], 'epoch', digits(epoch))
  return 'ok'
end, {'allow-oom'})

register('readFeed', function(base)
  local feed = redis.call('HMGET', base .. ':feed', 'topic', 'cursor', 'lost', 'fed')
  if not feed[2] then return {} end
  return {feed[1], feed[2], tonumber(feed[3] or 0), tonumber(feed[4] or 0)}
end, {'no-writes'})
