-- checking: the self-check of the stored data, in bounded steps and without a write.
--   checkPlaces   structure cursor count -> { next cursor | '', flat { invariant, id, text } }
--     Every member of the structure has a record whose place names this structure. structure: returned, scheduled,
--     completed, failed, lifo, prioritized, keyed, stream, lane.
--   checkKey      key -> flat { invariant, subject, text }
--     The lines of one key agree with the records, and it stands in `ready` or `sleeping` exactly if it should.
--   checkRecords  id… -> flat { invariant, id, text }
--     Every record stands in exactly the structure its place names, and its fields fit its state.
--   checkQueue    -> flat { invariant, subject, text }     marks, and jobs both completed and failed
-- Invariant numbers are those of ARCHITECTURE.md. Each function sees one instant, so what it finds is true.

local checking = {}
local STATE_OF = {returned = 'waiting', lifo = 'waiting', prioritized = 'prioritized', keyed = 'key-waiting',
  scheduled = 'delayed', completed = 'completed', failed = 'failed'}
local ENTRY_OF = {returned = 'r', lifo = 'i'}

local function found(report, invariant, id, text)
  report[#report + 1] = invariant
  report[#report + 1] = id
  report[#report + 1] = text
end

local function check_zset(base, structure, cursor, count, report)
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local ids = redis.call('ZRANGE', base .. ':' .. structure, from, from + count - 1)
  for _, member in ipairs(ids) do
    local id = places.id_of(structure, member)
    local state, entry = record.place(base, id)
    local expected = id ~= member and string.sub(member, 1, 16) or ENTRY_OF[structure] or entry
    if not state then
      found(report, 'I2', id, 'in ' .. structure .. ' but has no record')
    elseif state ~= STATE_OF[structure] or entry ~= expected then
      found(report, 'I3', id, 'in ' .. structure .. ' but its place is ' .. state .. ' ' .. entry)
    end
  end
  return #ids == count and digits(from + count) or ''
end

local function is_pending(stream, entry)
  local rows = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
  return not rows.err and rows[1] ~= nil
end

local function check_stream(base, structure, cursor, count, report)
  local stream = base .. ':' .. structure
  local rows = redis.call('XRANGE', stream, cursor == '' and '-' or '(' .. cursor, '+', 'COUNT', count)
  for _, entry in ipairs(rows) do
    local id, place = entry[2][2], select(3, entries.find(stream, entry[1]))
    local state, at = record.place(base, id)
    local expected = is_pending(stream, entry[1]) and 'active' or 'waiting'
    if structure == 'lane' and expected == 'waiting' then
      found(report, 'I4', id, 'lane entry ' .. entry[1] .. ' is pending for nobody')
    end
    if not state then
      found(report, 'I2', id, structure .. ' entry ' .. entry[1] .. ' has no record')
    elseif state ~= expected or at ~= place then
      found(report, 'I3', id,
        structure .. ' entry ' .. entry[1] .. ' is ' .. expected .. ' but its place is ' .. state .. ' ' .. at)
    end
  end
  return #rows == count and rows[count][1] or ''
end

local function stands(base, id, state, entry)
  if state == 'completed' or state == 'failed' then return redis.call('ZSCORE', base .. ':' .. state, id) end
  if state == 'delayed' then return redis.call('ZSCORE', base .. ':scheduled', entry .. id) end
  if state == 'key-waiting' then
    local route = keyed.route_of(base, id)
    return route and redis.call('ZSCORE', base .. ':keyed', id)
      and redis.call('ZSCORE', base .. ':keyq:' .. route.key, route.sequence .. entry .. id)
  end
  if entry == 'r' then return redis.call('ZSCORE', base .. ':returned', id) end
  if entry == 'i' then return redis.call('ZSCORE', base .. ':lifo', id) end
  if state == 'prioritized' then return redis.call('ZSCORE', base .. ':prioritized', entry .. id) end
  local stream, raw = entries.stream_of(base, entry)
  local holder, key, full = entries.find(stream, raw)
  if key and redis.call('HEXISTS', base .. ':running', key) == 0 then return false end
  return holder == id and full == entry and is_pending(stream, raw) == (state == 'active')
end

-- Whether there is a job with this id, standing where its record says.
function checking.stands(base, id)
  local state, entry = record.place(base, id)
  return state and stands(base, id, state, entry) or false
end

local function check_record(base, id, report)
  local key = base .. ':job:' .. id
  local fields = redis.call('HMGET', key, 'place', 'name', 'data', 'ended', 'claim', 'after')
  if not fields[1] then
    if exists(key) then found(report, 'I2', id, 'a record without a place: no add made it') end
    return
  end
  local state, entry = record.place(base, id)
  if not fields[2] or not fields[3] then found(report, 'I2', id, 'a record without name or data') end
  if not stands(base, id, state, entry) then
    found(report, 'I1', id, 'its place is ' .. state .. ' ' .. entry .. ' but it does not stand there')
  end
  local over = state == 'completed' or state == 'failed'
  if over and not fields[4] then found(report, 'I5', id, state .. ' without a time of ending') end
  if state == 'active' and not fields[5] then found(report, 'I4', id, 'active without a claim') end
  if fields[6] and state == 'delayed' and not successors.is_expected(base, id, entry) then
    found(report, 'I9', id, 'waits for the end of another job, and no deduplication id names it')
  end
end

register('checkPlaces', function(base, args)
  local structure, report = args[1], {}
  local walk = STATE_OF[structure] and check_zset or check_stream
  local cursor = walk(base, structure, args[2], integer('count', args[3]), report)
  return {cursor, report}
end, {'no-writes'})

register('checkRecords', function(base, args)
  local report = {}
  for _, id in ipairs(args) do check_record(base, id, report) end
  return report
end, {'no-writes'})

-- Every member of one of a key's sets is a job of this key in that state.
local function check_members(base, key, members, state, report)
  for _, id in ipairs(members) do
    local route = keyed.route_of(base, id)
    local now = record.place(base, id)
    if not route or route.key ~= key then
      found(report, 'I6', id, 'in a line of key ' .. key .. ' but not a job of it')
    elseif now ~= state then
      found(report, 'I6', id, 'in a line of key ' .. key .. ' as ' .. state .. ' but its place is ' .. now)
    end
  end
end

-- A job that rests and was taken out of its turn (put off by hand) counts like any that waits for an instant.
local function check_ready(base, key, report)
  local waiting = redis.call('ZCARD', base .. ':keyq:' .. key)
  local call = {now = clock.now(), seen = glance.at(base)}
  local left = keyed.room(base, key, keyed.limits_of(base, key, call), call)
  local ready = redis.call('ZSCORE', base .. ':ready', key)
  local sleeping = redis.call('ZSCORE', base .. ':sleeping', key)
  local expected, stands = waiting > 0 and left > 0, (ready or sleeping) and true or false
  if expected ~= stands then
    found(report, 'I7', key, waiting .. ' jobs wait and ' .. left .. ' more may run, but the key is '
      .. (ready and 'ready' or sleeping and 'sleeping' or 'neither ready nor sleeping'))
  end
  if ready and sleeping then found(report, 'I7', key, 'both ready and sleeping') end
end

register('checkKey', function(base, args)
  local key, report, waiting = args[1], {}, {}
  for i, member in ipairs(redis.call('ZRANGE', base .. ':keyq:' .. key, 0, 999)) do
    waiting[i] = string.sub(member, 18)
  end
  check_members(base, key, waiting, 'key-waiting', report)
  check_members(base, key, redis.call('SRANDMEMBER', base .. ':keyrest:' .. key, 1000), 'delayed', report)
  check_ready(base, key, report)
  return report
end, {'no-writes'})

-- Marks beside the records point to jobs that still need them.
local function check_marks(base, report)
  local marks = {
    {'expiry', redis.call('ZRANGE', base .. ':expiry', 0, 999)},
    {'held', redis.call('ZRANGE', base .. ':held', 0, 999)},
    {'revoking', redis.call('SRANDMEMBER', base .. ':revoking', 1000)},
    {'moved', redis.call('ZRANGE', base .. ':moved', 0, 999)},
  }
  for _, mark in ipairs(marks) do
    for _, id in ipairs(mark[2]) do
      if not exists(base .. ':job:' .. id) then found(report, 'I9', id, 'in ' .. mark[1] .. ' but has no record') end
    end
  end
  for _, id in ipairs(redis.call('SRANDMEMBER', base .. ':revoking', 1000)) do
    if record.place(base, id) ~= 'active' then found(report, 'I9', id, 'in revoking but not active') end
  end
  for _, id in ipairs(redis.call('ZRANGE', base .. ':moved', 0, 999)) do
    local state = record.place(base, id)
    if state == 'completed' or state == 'failed' then found(report, 'I9', id, 'in moved but ' .. state) end
  end
end

local function check_both_final(base, report)
  for _, id in ipairs(redis.call('ZRANGE', base .. ':completed', 0, 999)) do
    if redis.call('ZSCORE', base .. ':failed', id) then found(report, 'I1', id, 'both completed and failed') end
  end
end

-- As many runs of each key are counted as stand in `lane`, if it is short enough to look at.
local function check_running(base, report)
  local lane, runs = base .. ':lane', {}
  if redis.call('XLEN', lane) > 1000 then return end
  for _, entry in ipairs(redis.call('XRANGE', lane, '-', '+')) do
    local key = entries.key_of(entry[2])
    if key then runs[key] = (runs[key] or 0) + 1 end
  end
  local counted = redis.call('HGETALL', base .. ':running')
  for i = 1, #counted, 2 do
    local key, count = counted[i], tonumber(counted[i + 1])
    if count ~= runs[key] then
      found(report, 'I6', key, count .. ' runs are counted and ' .. (runs[key] or 0) .. ' stand in lane')
    end
    runs[key] = nil
  end
  for key, count in pairs(runs) do found(report, 'I6', key, count .. ' runs stand in lane and none is counted') end
end

register('checkQueue', function(base)
  local report = {}
  check_running(base, report)
  check_marks(base, report)
  check_both_final(base, report)
  return report
end, {'no-writes'})
