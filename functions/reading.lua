-- reading: returns stored data. Every function is `no-writes`, so it also runs when memory is full.
--   version    -> text
--   now        -> ms by the server's clock
--   countJobs  -> flat { state, count }
--   getRecords id… -> { flat record | {} }…    at most 1,000 ids; fewer records than ids when the budget was spent
--              Three fields are not stored. limited: "1" if the job is rate-limited. due: the due time of a delayed job
--              (unless it waits for the end of another job), or the deadline of a suspended one, ms. handed: the
--              hand-over, see signals.lua
--   getHeads   id… -> { flat record | {} }…    the same without data, opts, result and error; with `size`, the size
--              of the data in bytes
--   getOutlines id… -> { flat record | {} }…   the same without data; with `size`
--   listJobs   state cursor count backwards -> { next cursor | '', ids }   at most 1,000 a step; '' starts. Jobs come
--              in the order in which they start, ended jobs with the newest first; backwards "1" reverses the order. A
--              cursor is a position in one direction, so all steps of a walk must have the same direction.
--   getLogs    id start stop [1] -> { count, lines, next | '' }     next: where to continue when the budget was spent;
--              1: "<ms> <run>" comes before each line, '' if it is unknown
--   isPaused   -> 0 | 1
--   lastEvent  -> { entry, number of events ever written }   where a reader that starts now begins

local reading = {}
reading.DEEP_STEP = 300          -- for jobs that cost several commands each
local DEEP_STEP = reading.DEEP_STEP
local LOG_STEP = 20

-- Return flat { state, count }. seen: the structures that exist; group: the fields of XINFO GROUPS of `fifo`.
function reading.counts(base, seen, group)
  local function size(name)
    return seen[name] and redis.call('ZCARD', base .. ':' .. name) or 0
  end

  local running, limited = group.pending or 0, size('sleeping')
  local kept = seen.results and redis.call('HLEN', base .. ':results') or 0
  return {
    'waiting', redis.call('XLEN', base .. ':fifo') - running - kept + size('returned') + size('lifo'),
    'active', running + redis.call('ZCARD', base .. ':runs'),
    'delayed', size('scheduled'),
    'prioritized', size('prioritized'),
    'key-waiting', redis.call('ZCARD', base .. ':keyed') - limited,
    'rate-limited', limited,
    'completed', redis.call('ZCARD', base .. ':completed') + kept,
    'failed', redis.call('ZCARD', base .. ':failed'),
    'waiting-children', size('parents'),
    'suspended', size('suspended'),
  }
end

local function limit(text)
  local count = integer('count', text)
  if count < 1 or count > 1000 then fail('ARGUMENT', 'count must be 1 to 1000, found ' .. text) end
  return count
end

-- Take one step through a zset, and append the ids to `ids`. structure: its name, if its members contain more than the
-- id. Return the next cursor, '' at the end.
local function by_rank(key, reverse, cursor, count, ids, structure)
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local found = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', key, from, from + count - 1)
  for _, member in ipairs(found) do ids[#ids + 1] = locations.id_of(structure, member) end
  return #found == count and digits(from + count) or ''
end

local list = {}

-- The structures of waiting jobs, in the order in which they are listed. The first character of a cursor
-- names one.
local AFTER = {r = 'p', p = 'i'}
local BEFORE = {i = 'p', p = 'r'}

local walk_waiting = {}

-- Return the oldest entry of a range that is read backwards, nil if the range is empty. `from` is its newer end.
-- XREVRANGE walks through the whole stream if its newer end is before the oldest entry of the stream.
local function oldest_in(stream, from, last)
  local first = redis.call('XRANGE', stream, last, '+', 'COUNT', 1)[1]
  local newest = string.match(from, '%d+%-%d+')
  local is_in = first and (not newest or first[1] == from or entries.before(first[1], newest))
  return is_in and first[1] or nil
end

-- Read up to `count` entries of a range, and fewer entries if their payloads are large. Return the entries, and true at
-- the end of the range.
local function read_entries(stream, backwards, from, last, count)
  local found, call_budget, piece = {}, budget.of_answer(), 4
  local oldest = backwards and oldest_in(stream, from, last)
  if backwards and not oldest then return found, true end
  while #found < count and (#found == 0 or not budget.is_spent(call_budget)) do
    local wanted = math.min(piece, count - #found)
    local rows = redis.call(backwards and 'XREVRANGE' or 'XRANGE', stream, from, last, 'COUNT', wanted)
    for _, row in ipairs(rows) do
      found[#found + 1] = row
      call_budget.bytes = call_budget.bytes + #row[2][2]
    end
    if #rows < wanted or rows[#rows][1] == oldest then return found, true end
    from, piece = '(' .. rows[#rows][1], math.min(piece * 2, 256)
  end
  return found, false
end

function walk_waiting.r(base, backwards, cursor, count, ids)
  return by_rank(base .. ':returned', backwards, cursor, count, ids)
end

-- Entries after the group's last delivered one are exactly the waiting jobs, unless the group was destroyed.
function walk_waiting.p(base, backwards, cursor, count, ids)
  local fifo = base .. ':fifo'
  local delivered = entries.last_delivered(fifo)
  local found, over
  if backwards then
    found, over = read_entries(fifo, true, cursor == '' and '+' or '(' .. cursor, '(' .. delivered, count)
  else
    found, over = read_entries(fifo, false, '(' .. (cursor == '' and delivered or cursor), '+', count)
  end
  local known = entries.may_repeat(base, delivered) and base .. ':results'
  for _, entry in ipairs(found) do
    local id = entries.job_of(entry[1], entry[2])
    if not known or redis.call('HEXISTS', known, id) == 0 then ids[#ids + 1] = id end
  end
  return over and '' or found[#found][1]
end

function walk_waiting.i(base, backwards, cursor, count, ids)
  return by_rank(base .. ':lifo', not backwards, cursor, count, ids)
end

-- A step lists jobs of one structure: the first one from the cursor on that is not empty.
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
  return by_rank(base .. ':prioritized', backwards, cursor, count, ids, 'prioritized')
end

local function is_rate_limited(base, id)
  local route = keyed.route_of(base, id)
  if not route or not redis.call('ZSCORE', base .. ':sleeping', route.key) then return false end
  local first = key_lines.range(base, route.key, 0, 1)[1]
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
    ids[#ids + 1] = string.sub(key_lines.range(base, key, 0, 1)[1], 18)
  end
  return next_cursor
end

-- Add the jobs of these rows of XPENDING. Return the id of the last one for which the budget sufficed.
local function add_pending(stream, rows, ids)
  local call_budget, last = budget.of_answer(), nil
  for _, row in ipairs(rows) do
    if last and budget.is_spent(call_budget) then return last end
    local id, _, _, fields = entries.find(stream, row[1])
    if id then ids[#ids + 1] = id end
    if fields then call_budget.bytes = call_budget.bytes + #fields[2] end
    last = row[1]
  end
  return last
end

-- XPENDING cannot read backwards, so this reads `fifo`. The entries of completed plain jobs lie between the pending
-- ones.
local function pending_backwards(base, from, count, ids)
  local found, over = read_entries(base .. ':fifo', true, from, '-', count)
  for _, entry in ipairs(found) do
    if entry[2][1] == '' or redis.call('HEXISTS', base .. ':results', plain.id_of(entry[1])) == 0 then
      ids[#ids + 1] = entries.job_of(entry[1], entry[2])
    end
  end
  return not over and found[#found][1]
end

-- Take one step through the runs outside of `fifo`. Return the rank of the next one, nil at the end.
local function others_from(base, rank, count, ids, backwards)
  local found = runs.jobs_from(base, digits(rank), digits(rank + count - 1), backwards)
  for _, id in ipairs(found) do ids[#ids + 1] = id end
  return #found == count and digits(rank + count) or nil
end

-- The cursor is "p<entry of fifo>" or "l<rank>". The runs of `fifo` are listed first.
function list.active(base, cursor, wanted, ids, backwards)
  local count, fifo = math.min(wanted, DEEP_STEP), base .. ':fifo'
  local is_elsewhere, position, more = string.sub(cursor, 1, 1) == 'l', string.sub(cursor, 2), nil
  if cursor == '' then is_elsewhere = backwards end
  if is_elsewhere then
    more = others_from(base, tonumber(position) or 0, count, ids, backwards)
    if more then return 'l' .. more end
    return backwards and 'p' or ''
  end
  if backwards then
    more = pending_backwards(base, position == '' and entries.last_delivered(fifo) or '(' .. position, count, ids)
    return more and 'p' .. more or ''
  end
  local rows = redis.pcall('XPENDING', fifo, GROUP, position == '' and '-' or '(' .. position, '+', count)
  if rows.err then rows = {} end
  local last = add_pending(fifo, rows, ids)
  if last and (#rows == count or last ~= rows[#rows][1]) then return 'p' .. last end
  return 'l'
end

list['waiting-children'] = function(base, cursor, count, ids, backwards)
  return by_rank(base .. ':parents', backwards, cursor, count, ids)
end

function list.suspended(base, cursor, count, ids, backwards)
  return by_rank(base .. ':suspended', backwards, cursor, count, ids)
end

function list.delayed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':scheduled', backwards, cursor, count, ids, 'scheduled')
end

do
  local COMPLETED_STEP = 100

  -- Read up to `count` entries beyond a position, and return the completed plain jobs among them as { entry ended },
  -- the last entry read, and true if there are no more.
  local function kept_beyond(base, at, count, backwards)
    local fifo, rows, reached = base .. ':fifo', {}, at
    local delivered = entries.last_delivered(fifo)
    -- No undelivered job has completed, unless the group was destroyed.
    local newest = entries.may_repeat(base, delivered) and '+' or delivered
    local from = at ~= '' and '(' .. at or (backwards and '-' or newest)
    local found, over = read_entries(fifo, not backwards, from, backwards and newest or '-', count)
    for _, entry in ipairs(found) do
      local kept = redis.call('HGET', base .. ':results', plain.id_of(entry[1]))
      if kept then rows[#rows + 1] = {entry[1], tonumber(string.match(kept, '^%d+'))} end
      reached = entry[1]
    end
    return rows, reached, over
  end

  -- Completed plain jobs are listed by number, and records by time of ending. Both lists are merged by that time. The
  -- cursor holds the position in each, "<entry> <rank>".
  function list.completed(base, cursor, wanted, ids, backwards)
    local count = math.min(wanted, COMPLETED_STEP)
    local at, rank = string.match(cursor, '^(%S*) (%d+)$')
    at, rank = at or '', tonumber(rank or 0)
    if redis.call('HLEN', base .. ':results') == 0 then
      local next_rank = by_rank(base .. ':completed', not backwards, digits(rank), wanted, ids)
      return next_rank ~= '' and ' ' .. next_rank or ''
    end
    local kept, reached, over = kept_beyond(base, at, count, backwards)
    local rows = redis.call(backwards and 'ZRANGE' or 'ZREVRANGE', base .. ':completed', digits(rank),
      digits(rank + count - 1), 'WITHSCORES')
    local i, k = 1, 1
    -- Records beyond the last entry that was read may have to follow entries that the next step reads.
    while #ids < count and (kept[i] or (over and rows[k])) do
      local ended = rows[k] and tonumber(rows[k + 1])
      local take_kept = kept[i] and (not ended or (kept[i][2] < ended) == (backwards or false))
      if take_kept then
        ids[#ids + 1], at, i = plain.id_of(kept[i][1]), kept[i][1], i + 1
      else
        ids[#ids + 1], rank, k = rows[k], rank + 1, k + 2
      end
    end
    if not kept[i] then at = reached end
    if over and not kept[i] and not rows[k] and #rows < 2 * count then return '' end
    return at .. ' ' .. digits(rank)
  end
end

function list.failed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':failed', not backwards, cursor, count, ids)
end

register('version', function() return VERSION end, {'no-writes'})

register('now', function() return clock.now() end, {'no-writes'})

register('countJobs', function(base)
  local features = redis.call('HGET', base .. ':meta2', 'features')
  return reading.counts(base, queue_flags.existing(base, features), entries.group_of(base .. ':fifo'))
end, {'no-writes'})

-- The fields of a record without its payload.
local OUTLINE = {'name', 'opts', 'place', 'route', 'claim', 'added', 'failures', 'stalls', 'ended', 'reason', 'error',
  'cause', 'letter', 'progress', 'result', 'dedup', 'drop', 'waits', 'group',
  'runner'}

local HEAD = {'name', 'place', 'route', 'claim', 'added', 'failures', 'stalls', 'ended', 'reason', 'cause', 'letter',
  'progress', 'waits', 'group', 'runner'}

-- Return the fields of a flat record that are asked for, and `size`.
local function part_of(whole, wanted)
  local flat = {}
  for i = 1, #whole, 2 do
    if wanted[whole[i]] then flat[#flat + 1], flat[#flat + 2] = whole[i], whole[i + 1] end
    if whole[i] == 'data' then flat[#flat + 1], flat[#flat + 2] = 'size', digits(#whole[i + 1]) end
  end
  return flat
end

local function as_set(fields)
  local set = {}
  for _, field in ipairs(fields) do set[field] = true end
  return set
end

-- Return a function that reads these fields of a job.
local function part(fields)
  local wanted
  return function(base, id, call_budget)
    wanted = wanted or as_set(fields)
    local key, flat = base .. ':job:' .. id, {}
    local values = redis.call('HMGET', key, unpack(fields))
    for i, value in ipairs(values) do
      if value then flat[#flat + 1], flat[#flat + 2] = fields[i], value end
    end
    if flat[1] then
      flat[#flat + 1], flat[#flat + 2] = 'size', digits(redis.call('HSTRLEN', key, 'data'))
      return flat
    end
    local whole = plain.view(base, id)
    budget.count_record(call_budget, whole)
    return part_of(whole, wanted)
  end
end

local head, outline = part(HEAD), part(OUTLINE)

local function whole(base, id)
  local flat = redis.call('HGETALL', base .. ':job:' .. id)
  return flat[1] and flat or plain.view(base, id)
end

-- Return the due time of a delayed job or the deadline of a suspended one, by the flat fields of its record; otherwise
-- nil.
local function due_of(base, id, flat)
  for i = 1, #flat, 2 do
    if flat[i] == 'place' then
      if flat[i + 1] == 'suspended s' then
        local deadline = signals.deadline(base, id)
        return deadline and digits(deadline)
      end
      local sequence = string.match(flat[i + 1], '^delayed (.*)$')
      local due = sequence and redis.call('ZSCORE', base .. ':scheduled', sequence .. id)
      return due and tonumber(due) < successors.NEVER and digits(tonumber(due)) or nil
    end
  end
end

-- Return the state of a job as users see it, nil if it does not exist.
function reading.state_of(base, id)
  local state = plain.location(base, id)
  if not state or (locations.is_final(state) and finish.is_over(base, id)) then return nil end
  if state == 'key-waiting' and is_rate_limited(base, id) then return 'rate-limited' end
  return state
end

local function records_of(base, args, read)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 records a call, found ' .. #args) end
  local records, call_budget = {}, budget.of_answer()
  local limited, held = exists(base .. ':sleeping'), exists(base .. ':held')
  local scheduled, suspended = exists(base .. ':scheduled'), exists(base .. ':suspended')
  local signalled = exists(base .. ':signalled')
  for i, id in ipairs(args) do
    if i > 1 and budget.is_spent(call_budget) then break end
    local flat = held and finish.is_over(base, id) and {} or read(base, id, call_budget)
    records[i] = flat
    budget.count_record(call_budget, flat)
    if limited and is_rate_limited(base, id) and plain.location(base, id) == 'key-waiting' then
      flat[#flat + 1], flat[#flat + 2] = 'limited', '1'
    end
    local handed = signalled and flat[1] and record.hand_overs(base, {id})[1]
    if handed then flat[#flat + 1], flat[#flat + 2] = 'handed', handed end
    local due = (scheduled or suspended) and due_of(base, id, flat)
    if due then flat[#flat + 1], flat[#flat + 2] = 'due', due end
  end
  return records
end

register('getRecords', function(base, args) return records_of(base, args, whole) end, {'no-writes'})

register('getHeads', function(base, args) return records_of(base, args, head) end, {'no-writes'})

register('getOutlines', function(base, args) return records_of(base, args, outline) end, {'no-writes'})

-- Take one step through the jobs in a state. Return the cursor of the next one, and ids.
function reading.step(base, state, cursor, count, backwards)
  local walk = list[state]
  if not walk then fail('ARGUMENT', 'unknown state ' .. state) end
  local ids = {}
  return walk(base, cursor, limit(count), ids, backwards == '1'), ids
end

register('listJobs', function(base, args)
  return {reading.step(base, args[1], args[2], args[3], args[4])}
end, {'no-writes'})

register('getLogs', function(base, args)
  local key, lines, call_budget = base .. ':logs:' .. args[1], {}, budget.of_answer()
  local timed = args[4] == '1'
  local count, from, last = redis.call('LLEN', key), integer('start', args[2]), integer('stop', args[3])
  if from < 0 then from = math.max(0, count + from) end
  if last < 0 then last = count + last end
  last = math.min(last, count - 1)
  while from <= last do
    if #lines > 0 and budget.is_spent(call_budget) then return {count, lines, digits(from)} end
    -- One line may be as large as a payload.
    for _, line in ipairs(redis.call('LRANGE', key, from, math.min(last, from + LOG_STEP - 1))) do
      call_budget.bytes = call_budget.bytes + #line
      local text, at = record.line_of(line)
      if timed then lines[#lines + 1] = at end
      lines[#lines + 1] = text
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
  return {last and last[1] or '0-0', tonumber(redis.call('HGET', base .. ':meta2', 'events') or 0)}
end, {'no-writes'})
