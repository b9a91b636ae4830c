-- streaming: the calls that write and read the chunks of jobs. chunks.lua describes how they are stored.
--   addChunks    channel number consumer n { id entry most_chunks most_bytes ttl count chunk*count }*n -> { status }*
--     Append the chunks of n runs, at most MOST_CHUNKS. entry: the lease token of the run; consumer: its worker, '' if
--     unknown, see updates.lua. The oldest chunks beyond most_chunks or most_bytes are trimmed. If the call ended
--     early, the reply has fewer than n statuses, and the other chunks were not appended.
--     status "ok", "missing", or "stale": the run has lost the job, nothing was written
--   followChunks id ttl -> "open" | "missing" | "completed" | "failed"
--     Open the stream of a job that has not ended, so that its end will be written. A repeated call has no second
--     effect.
--   readChunks   { id after }* -> { { status entries }* }
--     Return the entries after this one. If they are large, the reply has fewer items than the call, but at least one.
--     status "open": entries are the next ones, possibly none
--            "unopened": the job has not ended and has no stream, see followChunks
--            "behind": the stream ends before this entry, because it is a new stream that the reader does not know
--            "forgotten": the job had a stream
--            "completed": the job has ended without a stream; "failed" too, and entries are { reason error }
--            "missing": no job has this id

local MOST_CHUNKS = 250
local READ_AT_FIRST, READ_AT_MOST, MOST_ENTRIES = 2, 32, 200

-- Check the arguments. Return the position of each group.
local function parse(args)
  local at, groups, total = 5, {}, 0
  for g = 1, integer('number of groups', args[4]) do
    local count = integer('count', args[at + 5])
    if count < 1 or at + 5 + count > #args then fail('ARGUMENT', 'there are not ' .. count .. ' chunks') end
    if not string.find(args[at + 1], '^[plk]%d+%-%d+$') then fail('ARGUMENT', 'not a lease token: ' .. args[at + 1]) end
    for i = at + 2, at + 4 do
      if integer('limit', args[i]) < 1 then fail('ARGUMENT', 'a limit must be at least 1, found ' .. args[i]) end
    end
    groups[g], total = at, total + count
    at = at + 6 + count
  end
  if total > MOST_CHUNKS then fail('ARGUMENT', 'at most ' .. MOST_CHUNKS .. ' chunks in a call, found ' .. total) end
  return groups
end

-- Append the chunks of the group at args[at]. run: the number of the run.
local function append(base, args, at, run, seen)
  local id, key = args[at], base .. ':chunks:' .. args[at]
  local most_chunks, most_bytes = tonumber(args[at + 2]), tonumber(args[at + 3])
  local stream = chunks.open_of(base, id)
  if not stream then
    stream = chunks.new_stream()
    redis.call('UNLINK', key)    -- the stream of an earlier job with this id
    if not seen.logs then redis.call('HSETNX', base .. ':meta2', 'logs', '1') end
    seen.logs = true
  end
  if stream.number == 0 then redis.call('HSET', base .. ':job:' .. id, 'streamed', '1') end
  for i = at + 6, at + 5 + args[at + 5] do
    chunks.count(stream, #args[i], most_bytes)
    -- The number is above every earlier one, unless a user has changed the stream by hand.
    redis.pcall('XADD', key, digits(stream.number) .. '-' .. run, '', args[i])
  end
  local kept = chunks.drop_oldest(stream, most_bytes)
  stream.ttl = args[at + 4]
  redis.call('HSET', queue_flags.create(base, 'streamed', seen), id, chunks.packed(stream))
  if kept then redis.call('XTRIM', key, 'MINID', digits(kept)) end
  if stream.number > most_chunks then redis.call('XTRIM', key, 'MAXLEN', digits(most_chunks)) end
  chunks.publish(base, id, digits(stream.number))
end

-- Append the chunks of one run, if it still has the job. Return the status.
local function add(base, args, at, call)
  local id, entry = args[at], args[at + 1]
  local state, found = plain.location(base, id)
  if not state then return 'missing' end
  local row = runs.row(base, id, entry)
  if entries.fenced then
    if state ~= 'active' or found ~= entry then return 'stale' end
    if args[3] ~= '' and row and row[2] ~= args[3] then return 'stale' end
  end
  local claim = redis.call('HGET', base .. ':job:' .. id, 'claim')
  if not claim and row then
    plain.record_pending(base, row, call)
    claim = redis.call('HGET', base .. ':job:' .. id, 'claim')
  end
  append(base, args, at, chunks.run_of(claim or nil), call.seen)
  return 'ok'
end

request.register('addChunks', function(base, args)
  local groups, call_budget, answer, call = parse(args), budget.new(), {}, queue_flags.call(base)
  for g, at in ipairs(groups) do
    if g > 1 and budget.has_settled_enough(call_budget) then break end
    answer[g] = add(base, args, at, call)
  end
  return answer
end)

register('followChunks', function(base, args)
  local id, ttl = args[1], integer('ttl', args[2])
  local state = plain.location(base, id)
  if not state then return 'missing' end
  if locations.is_final(state) then return finish.is_over(base, id) and 'missing' or state end
  queue_flags.require(base)
  plain.open(base, id)
  if chunks.open_of(base, id) then return 'open' end
  redis.call('UNLINK', base .. ':chunks:' .. id)
  redis.call('HSETNX', base .. ':meta2', 'logs', '1')
  redis.call('HSETNX', base .. ':job:' .. id, 'streamed', '0')
  redis.call('HSET', queue_flags.create(base, 'streamed'), id, '0 0 ' .. digits(ttl) .. ' ')
  return 'open'
end, {'allow-oom'})

-- Return the entries after an id, up to a number and a size.
local function read_on(key, after, call_budget)
  local found, step = {}, READ_AT_FIRST
  repeat
    local rows = redis.call('XRANGE', key, '(' .. after, '+', 'COUNT', step)
    for _, row in ipairs(rows) do
      found[#found + 1] = row
      for i = 2, #row[2], 2 do call_budget.bytes = call_budget.bytes + #row[2][i] end
      after = row[1]
    end
    local is_last = #rows < step
    step = math.min(2 * step, READ_AT_MOST)
  until is_last or #found >= MOST_ENTRIES or budget.is_spent(call_budget)
  return found
end

-- Return status and entries for a job without an open stream. marked: the field `streamed` of its record, "1" if it had
-- chunks.
local function read_ended(base, id, state, marked)
  if not state then return {'missing', {}} end
  if not locations.is_final(state) then return {'unopened', {}} end
  if marked == '1' then return {'forgotten', {}} end
  if state == 'completed' then return {state, {}} end
  local known = redis.call('HMGET', base .. ':job:' .. id, 'reason', 'error')
  return {state, {known[1] or '', known[2] or ''}}
end

-- Return the state of a job, and the field `streamed` of its record. Return nil if it does not exist.
local function known_job(base, id)
  local state = plain.location(base, id)
  if state and locations.is_final(state) and finish.is_over(base, id) then state = nil end
  return state, state and redis.call('HGET', base .. ':job:' .. id, 'streamed')
end

local function read(base, id, after, call_budget)
  local key, stream = base .. ':chunks:' .. id, chunks.open_of(base, id)
  if not stream then
    -- A stream that has ended may be older than the job: retention has removed a job of the same id, and it was added
    -- again.
    local state, marked = known_job(base, id)
    if not exists(key) or (state and not (marked and locations.is_final(state))) then
      return read_ended(base, id, state, marked)
    end
  end
  local found = read_on(key, after, call_budget)
  if found[1] then return {'open', found} end
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if last then return {entries.before(last[1], after) and 'behind' or 'open', {}} end
  return {(stream and stream.number or 0) < tonumber(string.match(after, '^%d+')) and 'behind' or 'open', {}}
end

register('readChunks', function(base, args)
  local call_budget, answer = budget.of_answer(), {}
  for i = 1, #args, 2 do
    local after = args[i + 1] or ''
    if not string.find(after, '^%d+%-%d+$') then fail('ARGUMENT', 'not a position: ' .. after) end
  end
  for i = 1, #args, 2 do
    if i > 1 and budget.is_spent(call_budget) then break end
    answer[#answer + 1] = read(base, args[i], args[i + 1], call_budget)
  end
  return answer
end, {'no-writes'})
