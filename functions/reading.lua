-- reading: what is there. Every function is `no-writes`, so it also runs when memory is full.
--   version    -> text
--   countJobs  -> flat { state, count }
--   getRecords id… -> { flat record | {} }…                      at most 1,000 ids
--   listJobs   state cursor count -> { next cursor | '', ids }   at most 1,000 a step; '' starts; newest finished first
--   getLogs    id start stop -> { count, lines }
--   isPaused   -> 0 | 1
--   lastEvent  -> { entry, number of events ever written }   where a reader that starts now begins

local reading = {}

function reading.counts(base)
  return {
    'waiting', places.ready_count(base),
    'active', places.pending_count(base .. ':stream') + places.pending_count(base .. ':lane'),
    'delayed', redis.call('ZCARD', base .. ':scheduled'),
    'completed', redis.call('ZCARD', base .. ':completed'),
    'failed', redis.call('ZCARD', base .. ':failed'),
  }
end

local function limit(text)
  local count = integer('count', text)
  if count < 1 or count > 1000 then fail('ARGUMENT', 'count must be 1 to 1000, found ' .. text) end
  return count
end

-- Entries after the group's last delivered one are exactly those that wait.
local function last_delivered(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err or not groups[1] then return '0' end
  for i = 1, #groups[1], 2 do
    if groups[1][i] == 'last-delivered-id' then return groups[1][i + 1] end
  end
  return '0'
end

local function by_rank(key, reverse, cursor, count, ids)
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local found = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', key, from, from + count - 1)
  for _, id in ipairs(found) do ids[#ids + 1] = id end
  return #found == count and digits(from + count) or ''
end

local list = {}

function list.waiting(base, cursor, count, ids)
  if cursor == '' or string.sub(cursor, 1, 1) == 'r' then
    local next_cursor = by_rank(base .. ':returned', false, string.sub(cursor, 2), count, ids)
    if next_cursor ~= '' then return 'r' .. next_cursor end
    cursor = 's' .. last_delivered(base .. ':stream')
    if #ids > 0 then return cursor end
  end
  local found = redis.call('XRANGE', base .. ':stream', '(' .. string.sub(cursor, 2), '+', 'COUNT', count)
  for _, entry in ipairs(found) do ids[#ids + 1] = entry[2][2] end
  return #found == count and 's' .. found[count][1] or ''
end

function list.active(base, cursor, count, ids)
  local letter = cursor == '' and 's' or string.sub(cursor, 1, 1)
  local from = #cursor > 1 and '(' .. string.sub(cursor, 2) or '-'
  local stream = record.stream_of(base, letter)
  local rows = redis.pcall('XPENDING', stream, GROUP, from, '+', count)
  if rows.err then rows = {} end
  for _, row in ipairs(rows) do
    local entry = redis.call('XRANGE', stream, row[1], row[1])[1]
    if entry then ids[#ids + 1] = entry[2][2] end
  end
  if #rows == count then return letter .. rows[count][1] end
  return letter == 's' and 'l' or ''
end

function list.delayed(base, cursor, count, ids)
  return by_rank(base .. ':scheduled', false, cursor, count, ids)
end

function list.completed(base, cursor, count, ids)
  return by_rank(base .. ':completed', true, cursor, count, ids)
end

function list.failed(base, cursor, count, ids)
  return by_rank(base .. ':failed', true, cursor, count, ids)
end

register('version', function() return VERSION end, {'no-writes'})

register('countJobs', reading.counts, {'no-writes'})

register('getRecords', function(base, args)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 records a call, found ' .. #args) end
  local records = {}
  for i, id in ipairs(args) do records[i] = redis.call('HGETALL', base .. ':job:' .. id) end
  return records
end, {'no-writes'})

register('listJobs', function(base, args)
  local walk = list[args[1]]
  if not walk then fail('ARGUMENT', 'unknown state ' .. args[1]) end
  local ids = {}
  local cursor = walk(base, args[2], limit(args[3]), ids)
  return {cursor, ids}
end, {'no-writes'})

register('getLogs', function(base, args)
  local key = base .. ':logs:' .. args[1]
  return {redis.call('LLEN', key), redis.call('LRANGE', key, integer('start', args[2]), integer('stop', args[3]))}
end, {'no-writes'})

register('isPaused', function(base)
  return wakeup.paused(base) and 1 or 0
end, {'no-writes'})

register('lastEvent', function(base)
  local last = redis.call('XREVRANGE', base .. ':events', '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', tonumber(redis.call('HGET', base .. ':meta', 'events') or 0)}
end, {'no-writes'})
