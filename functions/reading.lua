-- reading: returns stored data. Every function is `no-writes`, so it also runs when memory is full.
--   version    -> text
--   countJobs  -> flat { state, count }
--   getRecords id… -> { flat record | {} }…    at most 1,000 ids; fewer records than ids when the budget was spent: the
--                                              caller asks again for the rest. Two fields are not stored: `limited`
--                                              ("1": the job is rate-limited), and `due`, the due time of a delayed job
--                                              in ms, unless it waits for the end of another job
--   getHeads   id… -> { flat record | {} }…    the same without data, opts, result and error; with `size`, the size of
--              the data in bytes
--   getOutlines id… -> { flat record | {} }…   the same without data; with `size`
--   listJobs   state cursor count backwards -> { next cursor | '', ids }   at most 1,000 a step; '' starts. Jobs come
--              in the order in which they start, ended jobs with the newest first; backwards "1" reverses the order. A
--              cursor is a position in one direction, so all steps of a walk must have the same direction.
--   listWorkers  silent_ms -> { name, last seen ms, info, running }…   seen within `silent_ms`; at most 1,000
--   getLogs    id start stop -> { count, lines, next | '' }     next: where to continue when the budget was spent
--   isPaused   -> 0 | 1
--   lastEvent  -> { entry, number of events ever written }   where a reader that starts now begins

local reading = {}
reading.DEEP_STEP = 300          -- for jobs that cost several commands each
local DEEP_STEP = reading.DEEP_STEP
local LOG_STEP = 20

function reading.counts(base)
  local stream = base .. ':stream'
  local running, limited = entries.pending_count(stream), redis.call('ZCARD', base .. ':sleeping')
  return {
    'waiting', redis.call('XLEN', stream) - running + redis.call('ZCARD', base .. ':returned')
      + redis.call('ZCARD', base .. ':lifo'),
    'active', running + entries.pending_count(base .. ':lane'),
    'delayed', redis.call('ZCARD', base .. ':scheduled'),
    'prioritized', redis.call('ZCARD', base .. ':prioritized'),
    'key-waiting', redis.call('ZCARD', base .. ':keyed') - limited,
    'rate-limited', limited,
    'completed', redis.call('ZCARD', base .. ':completed'),
    'failed', redis.call('ZCARD', base .. ':failed'),
  }
end

local function limit(text)
  local count = integer('count', text)
  if count < 1 or count > 1000 then fail('ARGUMENT', 'count must be 1 to 1000, found ' .. text) end
  return count
end

-- Entries after the group's last delivered one are exactly the waiting jobs.
function reading.last_delivered(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err or not groups[1] then return '0' end
  for i = 1, #groups[1], 2 do
    if groups[1][i] == 'last-delivered-id' then return groups[1][i + 1] end
  end
  return '0'
end

-- Take one step through a zset; `cut`: the number of characters before the id.
local function by_rank(key, reverse, cursor, count, ids, cut)
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local found = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', key, from, from + count - 1)
  for _, member in ipairs(found) do ids[#ids + 1] = cut and string.sub(member, cut + 1) or member end
  return #found == count and digits(from + count) or ''
end

local list = {}

-- The structures of waiting jobs, in the order in which they are listed. The first character of a cursor
-- names one.
local AFTER = {r = 's', s = 'i'}
local BEFORE = {i = 's', s = 'r'}

local walk_waiting = {}

function walk_waiting.r(base, backwards, cursor, count, ids)
  return by_rank(base .. ':returned', backwards, cursor, count, ids)
end

function walk_waiting.s(base, backwards, cursor, count, ids)
  local stream, delivered, found = base .. ':stream', reading.last_delivered(base .. ':stream'), nil
  if backwards then
    found = redis.call('XREVRANGE', stream, cursor == '' and '+' or '(' .. cursor, '(' .. delivered, 'COUNT', count)
  else
    found = redis.call('XRANGE', stream, '(' .. (cursor == '' and delivered or cursor), '+', 'COUNT', count)
  end
  for _, entry in ipairs(found) do ids[#ids + 1] = entry[2][2] end
  return #found == count and found[count][1] or ''
end

function walk_waiting.i(base, backwards, cursor, count, ids)
  return by_rank(base .. ':lifo', not backwards, cursor, count, ids)
end

-- A step ends with its structure, unless that was empty.
function list.waiting(base, cursor, count, ids, backwards)
  local prefix = cursor == '' and (backwards and 'i' or 'r') or string.sub(cursor, 1, 1)
  local rest = string.sub(cursor, 2)
  while true do
    local next_cursor = walk_waiting[prefix](base, backwards, rest, count, ids)
    if next_cursor ~= '' then return prefix .. next_cursor end
    prefix, rest = (backwards and BEFORE or AFTER)[prefix], ''
    if not prefix then return '' end
    if #ids > 0 then return prefix end
  end
end

function list.prioritized(base, cursor, count, ids, backwards)
  return by_rank(base .. ':prioritized', backwards, cursor, count, ids, 16)
end

local function is_rate_limited(base, id)
  local route = keyed.route_of(base, id)
  if not route or not redis.call('ZSCORE', base .. ':sleeping', route.key) then return false end
  local first = redis.call('ZRANGE', base .. ':keyq:' .. route.key, 0, 0)[1]
  return string.sub(first, 18) == id
end

list['key-waiting'] = function(base, cursor, wanted, ids, backwards)
  local all, count = {}, math.min(wanted, DEEP_STEP)
  local next_cursor = by_rank(base .. ':keyed', backwards, cursor, count, all)
  local limited = exists(base .. ':sleeping')
  for _, id in ipairs(all) do
    if not limited or not is_rate_limited(base, id) then ids[#ids + 1] = id end
  end
  return next_cursor
end

-- The first job of each key that a pause or a rate holds back, in the order in which they may start.
list['rate-limited'] = function(base, cursor, wanted, ids, backwards)
  local keys, count = {}, math.min(wanted, DEEP_STEP)
  local next_cursor = by_rank(base .. ':sleeping', backwards, cursor, count, keys)
  for _, key in ipairs(keys) do
    ids[#ids + 1] = string.sub(redis.call('ZRANGE', base .. ':keyq:' .. key, 0, 0)[1], 18)
  end
  return next_cursor
end

-- XPENDING has no reverse form. Each entry of `stream` up to the last delivered one is pending, as is all of
-- `lane`, for an entry is deleted with its lease.
local function active_backwards(base, cursor, count, ids)
  local prefix = cursor == '' and 'l' or string.sub(cursor, 1, 1)
  local stream, from = entries.stream_of(base, prefix), '+'
  if #cursor > 1 then
    from = '(' .. string.sub(cursor, 2)
  elseif prefix == 's' then
    from = reading.last_delivered(stream)
  end
  local found = redis.call('XREVRANGE', stream, from, '-', 'COUNT', count)
  for _, entry in ipairs(found) do ids[#ids + 1] = entry[2][2] end
  if #found == count then return prefix .. found[count][1] end
  return prefix == 'l' and 's' or ''
end

function list.active(base, cursor, wanted, ids, backwards)
  local count = math.min(wanted, DEEP_STEP)
  if backwards then return active_backwards(base, cursor, count, ids) end
  local prefix = cursor == '' and 's' or string.sub(cursor, 1, 1)
  local from = #cursor > 1 and '(' .. string.sub(cursor, 2) or '-'
  local stream = entries.stream_of(base, prefix)
  local rows = redis.pcall('XPENDING', stream, GROUP, from, '+', count)
  if rows.err then rows = {} end
  for _, row in ipairs(rows) do
    local entry = redis.call('XRANGE', stream, row[1], row[1])[1]
    if entry then ids[#ids + 1] = entry[2][2] end
  end
  if #rows == count then return prefix .. rows[count][1] end
  return prefix == 's' and 'l' or ''
end

function list.delayed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':scheduled', backwards, cursor, count, ids, 16)
end

function list.completed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':completed', not backwards, cursor, count, ids)
end

function list.failed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':failed', not backwards, cursor, count, ids)
end

register('version', function() return VERSION end, {'no-writes'})

register('countJobs', reading.counts, {'no-writes'})

local function whole(key)
  return redis.call('HGETALL', key)
end

-- The fields of a record without its payload.
local OUTLINE = {'name', 'opts', 'place', 'route', 'claim', 'added', 'failures', 'stalls', 'ended', 'reason', 'error',
  'cause', 'letter', 'progress', 'result', 'dedup', 'drop'}

local HEAD = {'name', 'place', 'route', 'claim', 'added', 'failures', 'stalls', 'ended', 'reason', 'cause', 'letter',
  'progress'}

local function part(key, fields)
  local flat, values = {}, redis.call('HMGET', key, unpack(fields))
  for i, value in ipairs(values) do
    if value then flat[#flat + 1], flat[#flat + 2] = fields[i], value end
  end
  if flat[1] then flat[#flat + 1], flat[#flat + 2] = 'size', digits(redis.call('HSTRLEN', key, 'data')) end
  return flat
end

local function head(key) return part(key, HEAD) end

local function outline(key) return part(key, OUTLINE) end

-- Return the due time of a job, by the flat fields of its record; nil for a job that is not delayed.
local function due_of(base, id, flat)
  for i = 1, #flat, 2 do
    if flat[i] == 'place' then
      local sequence = string.match(flat[i + 1], '^delayed (.*)$')
      local due = sequence and redis.call('ZSCORE', base .. ':scheduled', sequence .. id)
      return due and tonumber(due) < successors.NEVER and digits(tonumber(due)) or nil
    end
  end
end

local function records_of(base, args, read)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 records a call, found ' .. #args) end
  local records, it = {}, budget.of_answer()
  local limited, held = exists(base .. ':sleeping'), exists(base .. ':held')
  local scheduled = exists(base .. ':scheduled')
  for i, id in ipairs(args) do
    if i > 1 and budget.is_spent(it) then break end
    local flat = held and finish.is_over(base, id) and {} or read(base .. ':job:' .. id)
    records[i] = flat
    budget.count_record(it, flat)
    if limited and is_rate_limited(base, id) and record.location(base, id) == 'key-waiting' then
      flat[#flat + 1], flat[#flat + 2] = 'limited', '1'
    end
    local due = scheduled and due_of(base, id, flat)
    if due then flat[#flat + 1], flat[#flat + 2] = 'due', due end
  end
  return records
end

register('getRecords', function(base, args) return records_of(base, args, whole) end, {'no-writes'})

register('getHeads', function(base, args) return records_of(base, args, head) end, {'no-writes'})

register('getOutlines', function(base, args) return records_of(base, args, outline) end, {'no-writes'})

-- One step through the jobs in a state. Returns the cursor of the next one, and ids.
function reading.step(base, state, cursor, count, backwards)
  local walk = list[state]
  if not walk then fail('ARGUMENT', 'unknown state ' .. state) end
  local ids = {}
  return walk(base, cursor, limit(count), ids, backwards == '1'), ids
end

register('listJobs', function(base, args)
  return {reading.step(base, args[1], args[2], args[3], args[4])}
end, {'no-writes'})

register('listWorkers', function(base, args)
  local since, running, rows = clock.now() - integer('silent', args[1]), {}, {}
  for _, name in ipairs({'stream', 'lane'}) do
    local summary = redis.pcall('XPENDING', base .. ':' .. name, GROUP)
    for _, row in ipairs(not summary.err and summary[4] or {}) do running[row[1]] = (running[row[1]] or 0) + row[2] end
  end
  local alive = redis.call('ZRANGEBYSCORE', base .. ':alive', since, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  for i = 1, #alive, 2 do
    local name = alive[i]
    rows[#rows + 1] = {name, tonumber(alive[i + 1]), redis.call('HGET', base .. ':workers', name) or '',
      running[name] or 0}
  end
  return rows
end, {'no-writes'})

register('getLogs', function(base, args)
  local key, lines, it = base .. ':logs:' .. args[1], {}, budget.of_answer()
  local count, from, last = redis.call('LLEN', key), integer('start', args[2]), integer('stop', args[3])
  if from < 0 then from = math.max(0, count + from) end
  if last < 0 then last = count + last end
  last = math.min(last, count - 1)
  while from <= last do
    if #lines > 0 and budget.is_spent(it) then return {count, lines, digits(from)} end
    -- One line may be as large as a payload.
    for _, line in ipairs(redis.call('LRANGE', key, from, math.min(last, from + LOG_STEP - 1))) do
      lines[#lines + 1] = line
      it.bytes = it.bytes + #line
    end
    from = from + LOG_STEP
  end
  return {count, lines, ''}
end, {'no-writes'})

register('isPaused', function(base)
  return wakeup.paused(base) and 1 or 0
end, {'no-writes'})

register('lastEvent', function(base)
  local last = redis.call('XREVRANGE', base .. ':events', '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', tonumber(redis.call('HGET', base .. ':meta', 'events') or 0)}
end, {'no-writes'})
