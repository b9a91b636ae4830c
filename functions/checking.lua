-- checking: the self-check of the stored data, in bounded steps and without a write.
--   checkPlaces   structure cursor count -> { next cursor | '', flat { invariant, id, text } }
--     Every member of the structure has a record whose place names this structure. structure: returned, scheduled,
--     completed, failed, stream, lane.
--   checkRecords  id… -> flat { invariant, id, text }
--     Every record stands in exactly the structure its place names, and its fields fit its state.
--   checkQueue    -> flat { invariant, subject, text }     marks, caps and consumers
-- Invariant numbers are those of ARCHITECTURE.md. Each function sees one instant, so what it finds is true.

local STATE_OF = {returned = 'waiting', scheduled = 'delayed', completed = 'completed', failed = 'failed'}

local function found(report, invariant, id, text)
  report[#report + 1] = invariant
  report[#report + 1] = id
  report[#report + 1] = text
end

local function check_zset(base, structure, cursor, count, report)
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local ids = redis.call('ZRANGE', base .. ':' .. structure, from, from + count - 1)
  for _, id in ipairs(ids) do
    local state, entry = record.place(base, id)
    if not state then
      found(report, 'I2', id, 'in ' .. structure .. ' but has no record')
    elseif state ~= STATE_OF[structure] or (structure == 'returned' and entry ~= 'r') then
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
  local stream, letter = base .. ':' .. structure, structure == 'stream' and 's' or 'l'
  local entries = redis.call('XRANGE', stream, cursor == '' and '-' or '(' .. cursor, '+', 'COUNT', count)
  for _, entry in ipairs(entries) do
    local id, place = entry[2][2], letter .. entry[1]
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
  return #entries == count and entries[count][1] or ''
end

local function stands(base, id, state, entry)
  if state == 'completed' or state == 'failed' then return redis.call('ZSCORE', base .. ':' .. state, id) end
  if state == 'delayed' then return redis.call('ZSCORE', base .. ':scheduled', id) end
  if entry == 'r' then return redis.call('ZSCORE', base .. ':returned', id) end
  local stream, raw = record.stream_of(base, entry)
  local row = redis.call('XRANGE', stream, raw, raw)[1]
  return row and row[2][2] == id and is_pending(stream, raw) == (state == 'active')
end

local function check_record(base, id, report)
  local key = base .. ':job:' .. id
  local fields = redis.call('HMGET', key, 'place', 'name', 'data', 'ended', 'claim')
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

-- Marks beside the records point to jobs that still need them.
local function check_marks(base, report)
  local marks = {
    {'expiry', redis.call('ZRANGE', base .. ':expiry', 0, 999)},
    {'held', redis.call('ZRANGE', base .. ':held', 0, 999)},
    {'revoking', redis.call('SRANDMEMBER', base .. ':revoking', 1000)},
  }
  for _, mark in ipairs(marks) do
    for _, id in ipairs(mark[2]) do
      if not exists(base .. ':job:' .. id) then found(report, 'I9', id, 'in ' .. mark[1] .. ' but has no record') end
    end
  end
  for _, id in ipairs(redis.call('SRANDMEMBER', base .. ':revoking', 1000)) do
    if record.place(base, id) ~= 'active' then found(report, 'I9', id, 'in revoking but not active') end
  end
end

local function check_both_final(base, report)
  for _, id in ipairs(redis.call('ZRANGE', base .. ':completed', 0, 999)) do
    if redis.call('ZSCORE', base .. ':failed', id) then found(report, 'I1', id, 'both completed and failed') end
  end
end

register('checkQueue', function(base)
  local report = {}
  check_marks(base, report)
  check_both_final(base, report)
  return report
end, {'no-writes'})
