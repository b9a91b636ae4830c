-- checking: verifies that jobs and the structures that hold them agree, in bounded steps and without a write.
--   checkPlaces   structure cursor count -> { next cursor | '', flat { invariant, id, text } }
--     Every member of the structure has a record whose location names this structure. structure: returned, scheduled,
--     completed, failed, lifo, prioritized, keyed, parents, suspended, fifo, runs.
--   checkRecords  id… -> { number of records looked at, flat { invariant, id, text } }
--     Every record is in exactly the structure that its location names, and its fields fit its state.
-- docs/internals/stored-data.md numbers the invariants. Each function sees one instant, so its findings are
-- exact. A call ends early when its budget is spent, and the caller continues from the returned cursor.

local checking = {}
local STATE_OF = {returned = 'waiting', lifo = 'waiting', prioritized = 'prioritized', keyed = 'key-waiting',
  scheduled = 'delayed', parents = 'waiting-children', suspended = 'suspended', completed = 'completed',
  failed = 'failed'}
local ENTRY_OF = {returned = 'r', lifo = 'i', parents = 'w', suspended = 's'}

-- Note a finding.
function checking.found(report, invariant, id, text)
  report[#report + 1] = invariant
  report[#report + 1] = id
  report[#report + 1] = text
end

-- Return the state and the entry of a job with a record or of a compact job, nil if there is none with this id.
function checking.location_of(base, id)
  local state, entry = record.location(base, id)
  if state then return state, entry end
  return compact.location(base, id)
end

local found, location_of = checking.found, checking.location_of

local function check_zset(base, structure, cursor, count, report)
  local call_budget = budget.new()
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local ids = redis.call('ZRANGE', base .. ':' .. structure, from, from + count - 1)
  for i, member in ipairs(ids) do
    if i > 1 and budget.is_spent(call_budget) then return digits(from + i - 1) end
    local id, named = locations.parts_of(structure, member)
    local state, entry = location_of(base, id)
    local expected = named or ENTRY_OF[structure] or entry
    if not state then
      found(report, 'I2', id, 'in ' .. structure .. ' but has no record')
    elseif state ~= STATE_OF[structure] or entry ~= expected then
      found(report, 'I3', id, 'in ' .. structure .. ' but its location is ' .. state .. ' ' .. entry)
    end
  end
  return #ids == count and digits(from + count) or ''
end

local function is_pending(stream, entry)
  local rows = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
  return not rows.err and rows[1] ~= nil
end

-- Check an entry of a plain job: it is undelivered, pending, or in `results`, and `recorded` names it exactly if it
-- has a record.
local function check_plain(base, raw, pending, delivered, report)
  local id = plain.id_of(raw)
  local kept = redis.call('HEXISTS', base .. ':results', id) == 1
  local recorded = redis.call('SISMEMBER', base .. ':recorded', raw) == 1
  if recorded ~= exists(base .. ':job:' .. id) then
    found(report, 'I16', id, recorded and 'in recorded but has no record' or 'a plain job with a record')
  end
  local waits = entries.before(delivered, raw)
  if (kept and 1 or 0) + (pending and 1 or 0) + (waits and 1 or 0) ~= 1 then
    found(report, 'I14', id, 'entry ' .. raw .. ' of fifo is ' .. (kept and 'completed ' or '')
      .. (pending and 'pending ' or '') .. (waits and 'undelivered ' or '') .. '(exactly one of them is right)')
  end
  return recorded
end

-- Check that an undelivered entry without a mark may be read by a worker. special: of entries.mark_special.
local function check_mark(raw, fields, special, report)
  local number = plain.id_of(raw)
  if tonumber(number) <= special then return end
  if fields[1] == '' or entries.is_special(fields[2], fields[3] or '') then
    found(report, 'I26', number, 'entry ' .. raw .. ' of fifo is above the number in special')
  end
end

local function check_entry(base, entry, delivered, report)
  local stream = base .. ':fifo'
  local id, _, location, fields = entries.find(stream, entry[1])
  local pending = is_pending(stream, entry[1])
  local expected = pending and 'active' or 'waiting'
  if fields and fields[1] ~= '' and not check_plain(base, entry[1], pending, delivered, report) then return end
  local state, at = location_of(base, id)
  if not state then
    found(report, 'I2', id, 'fifo entry ' .. entry[1] .. ' has no record')
  elseif state ~= expected or at ~= location then
    found(report, 'I3', id,
      'fifo entry ' .. entry[1] .. ' is ' .. expected .. ' but its location is ' .. state .. ' ' .. at)
  end
end

local function check_fifo(base, cursor, count, report)
  local stream, call_budget = base .. ':fifo', budget.new()
  local delivered = entries.last_delivered(stream)
  local special = tonumber(redis.call('HGET', base .. ':meta2', 'special') or 0)
  local from, n, last = cursor == '' and '-' or '(' .. cursor, 0, nil
  while n < count do
    local wanted = math.min(count - n, 8)
    local rows = redis.call('XRANGE', stream, from, '+', 'COUNT', wanted)
    for _, entry in ipairs(rows) do
      if last and budget.is_spent(call_budget) then return last end
      check_entry(base, entry, delivered, report)
      if entries.before(delivered, entry[1]) then check_mark(entry[1], entry[2], special, report) end
      call_budget.bytes, last, n = call_budget.bytes + #entry[2][2], entry[1], n + 1
    end
    if #rows < wanted then return '' end
    from = '(' .. last
  end
  return last
end

-- Return a value other than false and nil if a job with this location is there.
function checking.is_in_place(base, id, state, entry)
  if state == 'completed' or state == 'failed' then return redis.call('ZSCORE', base .. ':' .. state, id) end
  if state == 'delayed' then return redis.call('ZSCORE', base .. ':scheduled', entry .. id) end
  if state == 'key-waiting' then
    local route = keyed.route_of(base, id)
    return route and redis.call('ZSCORE', base .. ':keyed', id)
      and key_lines.has(base, route.key, route.sequence .. entry .. id)
  end
  if state == 'waiting-children' then return redis.call('ZSCORE', base .. ':parents', id) end
  if state == 'suspended' then return redis.call('ZSCORE', base .. ':suspended', id) end
  if entry == 'r' then return redis.call('ZSCORE', base .. ':returned', id) end
  if entry == 'i' then return redis.call('ZSCORE', base .. ':lifo', id) end
  if state == 'prioritized' then return redis.call('ZSCORE', base .. ':prioritized', entry .. id) end
  if string.sub(entry, 1, 1) ~= 'p' then
    local key = string.sub(entry, 1, 1) == 'k' and runs.key_of(base, id, entry)
    if key and redis.call('HEXISTS', base .. ':running', key) == 0 then return false end
    return runs.row(base, id, entry) ~= nil and state == 'active'
  end
  local fifo, raw = base .. ':fifo', string.sub(entry, 2)
  local holder, _, full = entries.find(fifo, raw)
  return holder == id and full == entry and is_pending(fifo, raw) == (state == 'active')
end

-- Return true if there is a job with this id, in the structure that its record names.
function checking.is_there(base, id)
  local state, entry = record.location(base, id)
  if not state then return plain.find(base, id) ~= nil or compact.has(base, id) end
  return checking.is_in_place(base, id, state, entry) or false
end

-- Check runs from a rank on: each has a job that runs under its token, and a worker.
local function check_runs(base, cursor, count, report)
  local from, call_budget = cursor == '' and 0 or integer('cursor', cursor), budget.new()
  local rows = runs.rows_from(base, from, count, clock.now())
  for i, row in ipairs(rows) do
    if i > 1 and budget.is_spent(call_budget) then return digits(from + i - 1) end
    local token, id = row[1], row[5]
    local state, at = location_of(base, id)
    if row[2] == '' then found(report, 'I4', id, 'its run ' .. token .. ' belongs to no worker') end
    if not state then
      found(report, 'I2', id, 'run ' .. token .. ' has no record')
    elseif state ~= 'active' or at ~= token then
      found(report, 'I3', id, 'run ' .. token .. ' is active but its location is ' .. state .. ' ' .. at)
    end
  end
  return #rows == count and digits(from + count) or ''
end

local function check_record(base, id, report)
  local key = base .. ':job:' .. id
  local fields = redis.call('HMGET', key, 'place', 'name', 'ended', 'claim', 'after')
  if not fields[1] then
    if exists(key) then found(report, 'I2', id, 'a record without a location: no add made it') end
    return
  end
  local state, entry = record.location(base, id)
  if not fields[2] or redis.call('HEXISTS', key, 'data') == 0 then
    found(report, 'I2', id, 'a record without name or data')
  end
  if not checking.is_in_place(base, id, state, entry) then
    found(report, 'I1', id, 'its location is ' .. state .. ' ' .. entry .. ' but it is not there')
  end
  local raw = plain.find(base, id)
  if raw and redis.call('SISMEMBER', base .. ':recorded', raw) == 0 then
    found(report, 'I16', id, 'a plain job with a record')
  end
  local over = state == 'completed' or state == 'failed'
  if over and not fields[3] then found(report, 'I5', id, state .. ' without a time of ending') end
  if state == 'active' and not fields[4] then found(report, 'I4', id, 'active without a claim') end
  if fields[5] and state == 'delayed' and not successors.is_expected(base, id, entry) then
    found(report, 'I9', id, 'waits for the end of another job, and no deduplication id names it')
  end
end

register('checkPlaces', function(base, args)
  local structure, report = args[1], {}
  local cursor, count = args[2], integer('count', args[3])
  if structure == 'fifo' then return {check_fifo(base, cursor, count, report), report} end
  if structure == 'runs' then return {check_runs(base, cursor, count, report), report} end
  return {check_zset(base, structure, cursor, count, report), report}
end, {'no-writes'})

register('checkRecords', function(base, args)
  local report, call_budget = {}, budget.new()
  for i, id in ipairs(args) do
    if i > 1 and budget.is_spent(call_budget) then return {i - 1, report} end
    check_record(base, id, report)
  end
  return {#args, report}
end, {'no-writes'})
