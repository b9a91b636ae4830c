-- stalled: jobs whose lease ran out start elsewhere; one that stalls too often is failed.
--   sweep  lane number max_stalled interval_ms gap_ms resume -> { more, recovered ids, failed ids, outbox } | {}
--     Any process may sweep at any time. It does nothing (and answers {}) when the last sweep is younger than the
--     interval, unless it resumes one (`more` was 1). One call looks at a bounded number of pending entries and goes on
--     from a cursor.
--   closeWorker  lane number consumer -> { more, returned }
--     Hand back whatever is pending under a consumer that holds nothing any more, then forget the consumer.
--   meta  hash  swept_at, seen_at (last sweep or renewal), settled_since (end of the last outage), gap, sweep_stream,
--               sweep_lane (cursors)
-- After a gap without any sign of life (gap_ms: half a lease; the server was down, or nobody was there) no lease is
-- judged by the time before it: else an outage would burn every healthy job.

local stalled = {}
local STEP = 100
local SHORTEST_LEASE_MS = 1000
local FORGET_AFTER_MS = 300000

local function pending(stream, from, consumer)
  local reply
  if consumer then
    reply = redis.pcall('XPENDING', stream, GROUP, from, '+', STEP, consumer)
  else
    reply = redis.pcall('XPENDING', stream, GROUP, from, '+', STEP)
  end
  return reply.err and {} or reply
end

-- A group that was destroyed takes the pending list with it. The stream is delivered again by itself; what stands in
-- `lane` must go back, for nobody reads it.
local function mend_lane(base, lines)
  local lane = base .. ':lane'
  if not redis.pcall('XPENDING', lane, GROUP).err then return 0 end
  claim.ensure_group(lane)
  local entries = redis.call('XRANGE', lane, '-', '+', 'COUNT', 1000)
  for _, entry in ipairs(entries) do
    local id = entry[2][2]
    redis.call('XDEL', lane, entry[1])
    if redis.call('HGET', base .. ':job:' .. id, 'place') == 'active l' .. entry[1] then
      returned.push(base, id, 'l' .. entry[1])
      events.note(lines, 'returned', id)
    end
  end
  return #entries
end

local function drop(stream, entry)
  redis.call('XACK', stream, GROUP, entry)
  redis.call('XDEL', stream, entry)
end

local function id_of(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  return found and found[2][2]
end

local function lease_of(base, id)
  local text = redis.call('HGET', base .. ':job:' .. id, 'claim')
  return tonumber(text and string.match(text, '^%d+ %d+ (%d+)') or SHORTEST_LEASE_MS)
end

-- One job whose lease ran out: back to its old place in the order, or failed.
local function recover(base, id, entry, max_stalled, now, report)
  local stalls = redis.call('HINCRBY', base .. ':job:' .. id, 'stalls', 1)
  events.note(report.lines, 'stalled', id, digits(stalls))
  if redis.call('SISMEMBER', base .. ':revoking', id) == 1 then
    finish.fail(base, id, entry, 'revoked', report)
    report.failed[#report.failed + 1] = id
  elseif stalls > max_stalled then
    finish.fail(base, id, entry, 'stalled', report)
    report.failed[#report.failed + 1] = id
  else
    returned.push(base, id, entry)
    report.recovered[#report.recovered + 1] = id
  end
end

-- Look at one step of a stream's pending list. Answers the cursor of the next step, '' at the end.
local function sweep_stream(base, letter, from, grace, max_stalled, now, report)
  local stream = record.stream_of(base, letter)
  local entries = pending(stream, from)
  for _, row in ipairs(entries) do
    local entry, idle = row[1], math.min(row[3], grace)
    if idle >= SHORTEST_LEASE_MS then
      local id = id_of(stream, entry)
      -- pcall: a key of another type, put there by hand, must not stop the sweep of all others.
      local place = id and redis.pcall('HGET', base .. ':job:' .. id, 'place')
      if place == 'waiting ' .. letter .. entry then
        -- Pending and never marked: a claim was cut off in the middle. The run never began.
        drop(stream, entry)
        returned.push(base, id, letter .. entry)
        report.recovered[#report.recovered + 1] = id
      elseif place ~= 'active ' .. letter .. entry then
        drop(stream, entry)
        if id and not exists(base .. ':job:' .. id) then record.lost(base, id) end
        events.note(report.lines, 'dropped', id or '', 'missing')
      elseif idle >= lease_of(base, id) then
        drop(stream, entry)
        recover(base, id, letter .. entry, max_stalled, now, report)
      end
    end
  end
  return #entries == STEP and '(' .. entries[STEP][1] or ''
end

-- Consumers that have nothing pending and gave no sign of life for long do not stay.
local function forget_dead(base, now)
  local dead = redis.call('ZRANGEBYSCORE', base .. ':alive', '-inf', now - FORGET_AFTER_MS, 'LIMIT', 0, STEP)
  for _, consumer in ipairs(dead) do
    if #pending(base .. ':stream', '-', consumer) == 0 and #pending(base .. ':lane', '-', consumer) == 0 then
      stalled.forget(base, consumer)
    end
  end
end

function stalled.forget(base, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', base .. ':stream', GROUP, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', base .. ':lane', GROUP, consumer)
  redis.call('ZREM', base .. ':alive', consumer)
  redis.call('HDEL', base .. ':workers', consumer)
  wakeup.leave(base, consumer, {scheduled = true})
end

-- Expire jobs nobody came for.
local function expire_waiting(base, now, lines, seen)
  local ids = redis.call('ZRANGEBYSCORE', base .. ':expiry', '-inf', now, 'LIMIT', 0, STEP)
  for _, id in ipairs(ids) do
    local state = record.place(base, id)
    if state == 'waiting' or state == 'delayed' then
      finish.fail(base, id, places.leave(base, id), 'expired', {now = now, lines = lines, seen = seen})
    else
      redis.call('ZREM', base .. ':expiry', id)
    end
  end
end

local function housekeeping(base, now, lines, seen)
  finish.release_held(base, now)
  finish.trim_by_age(base, now, seen)
  if seen.expiry then expire_waiting(base, now, lines, seen) end
  forget_dead(base, now)
end

local function sweep(base, args)
  local max_stalled, interval = integer('max_stalled', args[3]), integer('interval', args[4])
  local gap = integer('gap', args[5])
  local meta, now = base .. ':meta', clock.now()
  local state = redis.call('HMGET', meta, 'swept_at', 'sweep_stream', 'sweep_lane')
  local swept_at = tonumber(state[1] or nil)
  if args[6] ~= '1' and swept_at and now - swept_at < interval then return {} end
  local report = {now = now, recovered = {}, failed = {}, lines = {}, seen = glance.at(base)}
  local grace = now - lease.sign_of_life(base, now, gap)
  local cursors = {s = state[2] or '', l = state[3] or ''}
  local fresh = cursors.s == '' and cursors.l == ''
  for letter, cursor in pairs(cursors) do
    if fresh or cursor ~= '' then
      cursors[letter] = sweep_stream(base, letter, cursor == '' and '-' or cursor, grace, max_stalled, now, report)
    end
  end
  redis.call('HSET', meta, 'swept_at', now, 'sweep_stream', cursors.s, 'sweep_lane', cursors.l)
  local mended = mend_lane(base, report.lines)
  if fresh then housekeeping(base, now, report.lines, report.seen) end
  events.write(base, report.lines, now)
  if not report.seen.paused then wakeup.wake(base, #report.recovered + mended) end
  return {(cursors.s ~= '' or cursors.l ~= '') and 1 or 0, report.recovered, report.failed, report.seen.outbox and 1 or 0}
end

local function close_worker(base, args)
  local consumer, now, lines, count = args[3], clock.now(), {}, 0
  local more, seen = 0, glance.at(base)
  for _, letter in ipairs({'s', 'l'}) do
    local stream = record.stream_of(base, letter)
    local rows = pending(stream, '-', consumer)
    if #rows == STEP then more = 1 end
    for _, row in ipairs(rows) do
      local id = id_of(stream, row[1])
      drop(stream, row[1])
      if id and exists(base .. ':job:' .. id) then
        if redis.call('SISMEMBER', base .. ':revoking', id) == 1 then
          finish.fail(base, id, letter .. row[1], 'revoked', {now = now, lines = lines, seen = seen})
        else
          returned.push(base, id, letter .. row[1])
          events.note(lines, 'returned', id)
          count = count + 1
        end
      elseif id then
        record.lost(base, id)
      end
    end
  end
  if more == 0 then stalled.forget(base, consumer) end
  events.write(base, lines, now)
  if not seen.paused then wakeup.wake(base, count) end
  return {more, count}
end

request.register('sweep', sweep, {'allow-oom'})
request.register('closeWorker', close_worker, {'allow-oom'})
