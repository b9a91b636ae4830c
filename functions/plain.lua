-- plain: jobs without a record. A job with a generated id is only an entry of `fifo`, unless it has an option that
-- needs another structure (delay, priority, lifo, key, deduplication). Its id is the number in the id of the entry, and
-- the time of adding is the rest of that id. Its time to live is in `expiry` and its clients are in `waiters`, as for
-- other jobs. The state follows from the structures:
--   waiting    the entry has not been delivered
--   active     the entry is pending
--   completed  `results` has the number, see results.lua
-- A plain job gets a record as soon as something else must be stored for it: a failure, a retry, a lost lease, a log
-- line, a change by a user. Most functions that write therefore begin with plain.open, and then handle only records.
-- Add, claim, settle and the functions for waiting clients handle plain jobs themselves, and so do the readers.
--   recorded  set   entries of plain jobs that have a record, while the entry is still in `fifo`
--   started   hash  number -> when the run began, ms, of plain runs whose lease was renewed. A renewal resets the idle
--                   time of the entry. The start of every other plain run follows from its idle time.

local plain = {}
local DEFAULT_LEASE_MS = 30000     -- for a worker whose last reply, which names its lease, was deleted by hand
local TIME_BYTES = 14              -- "-" and the milliseconds, which have 13 digits until the year 2286
plain.END_OF_ID = -TIME_BYTES - 1   -- of an entry, for string.sub

-- Return the number in the id of an entry, which is the id of its plain job.
function plain.id_of(raw)
  return string.sub(raw, 1, -TIME_BYTES - 1)
end

-- Return the time in the id of an entry, as text.
function plain.added_of(raw)
  return string.sub(raw, -TIME_BYTES + 1)
end

-- Return the id and the fields of the entry of a plain job; nil if there is no plain job with this id. (It may have a
-- record, too.)
function plain.find(base, id)
  if #id > 16 or not string.find(id, '^[1-9]%d*$') then return nil end
  local found = redis.call('XRANGE', base .. ':fifo', id, id, 'COUNT', 1)[1]
  if found and found[2][1] ~= '' then return found[1], found[2] end
end

-- Return the lease in packed options, nil if they have none.
function plain.own_lease(opts)
  if not opts or not string.find(opts, '\161l', 1, true) then return nil end
  local readable, options = pcall(cmsgpack.unpack, opts)
  return readable and type(options) == 'table' and tonumber(options.l) or nil
end

-- Return when a plain run began, and its lease; both in ms. row: its row of XPENDING. A worker may renew the run before
-- it has received the claim, which resets the idle time. Then the stored reply has the time (last_claim in settle.lua).
function plain.claim_of(base, row, fields, now)
  local started = redis.call('HGET', base .. ':started', plain.id_of(row[1]))
  local lease, claimed = plain.last_claim(base, row[2], 'p' .. row[1])
  return tonumber(started or claimed or now - row[3]), plain.own_lease(fields[3]) or lease or DEFAULT_LEASE_MS
end

-- Write the record of a plain job. The caller has found the state.
local function write(base, raw, fields, state, ...)
  local key = base .. ':job:' .. plain.id_of(raw)
  redis.call('HSET', key, 'name', fields[1], 'data', fields[2], 'place', state .. ' p' .. raw, ...)
  if fields[3] then redis.call('HSET', key, 'opts', fields[3]) end
end

-- Give a plain run a record. Its entry remains, and so does its lease. seen: see queue_flags.create.
function plain.record_run(base, raw, fields, started, lease, seen)
  local id = plain.id_of(raw)
  write(base, raw, fields, 'active', 'claim', '1 ' .. digits(started) .. ' ' .. digits(lease))
  redis.call('SADD', queue_flags.create(base, 'recorded', seen), raw)
  redis.call('HDEL', base .. ':started', id)
end

-- Return when a completed plain job started and ended, as texts, and its result. kept: its value in `results`.
function plain.outcome_of(kept)
  local ended, started, from = string.match(kept, '^(%d+) (%d+) ()')
  return ended, started, from and string.sub(kept, from)    -- faster than matching a large result
end

-- Give a completed plain job a record. It leaves `fifo` and `results`. Return when it ended, as text. The caller adds
-- it to `completed`.
local function record_outcome(base, raw, fields, kept)
  local ended, started, result = plain.outcome_of(kept)
  local id = plain.id_of(raw)
  write(base, raw, fields, 'completed', 'claim', '1 ' .. started .. ' 0', 'ended', ended, 'result', result)
  redis.call('HDEL', base .. ':results', id)
  redis.call('XDEL', base .. ':fifo', raw)
  return ended
end

local function record_completed(base, raw, fields, kept)
  redis.call('ZADD', base .. ':completed', record_outcome(base, raw, fields, kept), plain.id_of(raw))
end

-- Give a completed plain job a record, so that retention can pass it. Return when it ended, as text; nil if its entry
-- was deleted by hand. The caller adds it to `completed`. kept: its value in `results`.
function plain.record_held(base, id, kept)
  local raw, fields = plain.find(base, id)
  return raw and record_outcome(base, raw, fields, kept)
end

-- Return true if the job of an entry got a record. A missing record was deleted by hand in this case, and the job is
-- lost like any other job without its record.
function plain.had_record(base, raw)
  return redis.call('SISMEMBER', base .. ':recorded', raw) == 1
end

-- Return the state of a plain job that has not completed, and its row of XPENDING if it runs; nil if the job had a
-- record.
local function state_of(base, raw)
  local row = entries.pending_row(base .. ':fifo', raw)
  if plain.had_record(base, raw) then return nil end
  return row and 'active' or 'waiting', row
end

-- Return the state of a plain job without a record, its entry, and the fields of the entry; then its row of XPENDING if
-- it runs, or its value in `results` if it has completed. Return nil if there is no such job.
function plain.look(base, id)
  local raw, fields = plain.find(base, id)
  if not raw then return nil end
  local kept = redis.call('HGET', base .. ':results', id)
  if kept then return 'completed', raw, fields, kept end
  local state, row = state_of(base, raw)
  if state then return state, raw, fields, row end
end

-- Give a plain job a record. state, raw, fields, detail: of plain.look; seen: see queue_flags.create.
function plain.add_record(base, id, state, raw, fields, detail, seen)
  if state == 'completed' then
    record_completed(base, raw, fields, detail)
  elseif state == 'active' then
    local started, lease = plain.claim_of(base, detail, fields, clock.now())
    plain.record_run(base, raw, fields, started, lease, seen)
  else
    write(base, raw, fields, 'waiting')
    redis.call('SADD', queue_flags.create(base, 'recorded', seen), raw)
  end
end

-- Give a plain job a record, if there is one with this id. Return its state and its token.
local function record_job(base, id, seen)
  local state, raw, fields, detail = plain.look(base, id)
  if not state then return nil end
  if not seen then queue_flags.require(base) end
  plain.add_record(base, id, state, raw, fields, detail, seen)
  return state, 'p' .. raw
end

-- Return the state and the entry of a job, nil if it does not exist. From then on the job has a record. For functions
-- that write. seen: the table of queue_flags.at, nothing in a call that has not read it.
function plain.open(base, id, seen)
  local state, entry = record.location(base, id)
  if state then return state, entry end
  state, entry = record_job(base, id, seen)
  if state then return state, entry end
  return compact.open(base, id)
end

-- The same as plain.open, for a call that has read the flags of the queue and has written already. Nothing here can
-- fail.
function plain.open_next(base, id, seen)
  local state, entry = record.location(base, id)
  if state then return state, entry end
  local raw, fields, detail
  state, raw, fields, detail = plain.look(base, id)
  if not state then return compact.open(base, id) end
  plain.add_record(base, id, state, raw, fields, detail, seen)
  return state, 'p' .. raw
end

-- Return the state and the entry of a job, nil if it does not exist. For functions that do not write.
function plain.location(base, id)
  local state, entry = record.location(base, id)
  if state then return state, entry end
  local raw
  state, raw = plain.look(base, id)
  if state then return state, 'p' .. raw end
  return compact.location(base, id)
end

-- Return the state of a job without a record. If it has completed, also return its result and the time of its end (ms,
-- as text). Return nil if no job without a record has this id.
function plain.outcome(base, id)
  -- The entry of a completed job is not read, because Redis hashes each text that Lua gets: 1 ms for a mebibyte.
  local kept = redis.call('HGET', base .. ':results', id)
  if kept then
    local ended, _, result = plain.outcome_of(kept)
    return 'completed', result, ended
  end
  local raw = plain.find(base, id)
  local state = raw and state_of(base, raw)
  if state then return state end
  return compact.outcome(base, id)
end

-- Return the name of a job without a record, nil if there is none with this id.
function plain.name_of(base, id)
  local _, fields = plain.find(base, id)
  if fields then return fields[1] end
  return (compact.name_of(base, id))
end

-- Return the flat record of a job without a record, as if it had one; {} if there is none.
function plain.view(base, id)
  local state, raw, fields, detail = plain.look(base, id)
  if not state then return compact.view(base, id) or {} end
  local flat = {'name', fields[1], 'data', fields[2], 'place', state .. ' p' .. raw}
  local function put(field, value) flat[#flat + 1], flat[#flat + 2] = field, value end
  if fields[3] then put('opts', fields[3]) end
  if state == 'active' then
    local started, lease = plain.claim_of(base, detail, fields, clock.now())
    put('claim', '1 ' .. digits(started) .. ' ' .. digits(lease))
  elseif state == 'completed' then
    local ended, started, result = plain.outcome_of(detail)
    put('claim', '1 ' .. started .. ' 0')
    put('ended', ended)
    put('result', result)
  end
  return flat
end

-- Forget when the runs of these entries began, because they have ended.
function plain.forget_starts(base, raw)
  local ids = {}
  for i, entry in ipairs(raw) do ids[i] = plain.id_of(entry) end
  in_chunks('HDEL', base .. ':started', nil, ids)
end

-- Give the job of a run a record if it has none, so that the caller can end the run. row: see runs.lua. Return the job,
-- its key if it has one, and its token. Return nil if its entry is missing.
function plain.record_pending(base, row, call)
  if row[5] then
    compact.open_run(base, row[5], row[1])
    return row[5], row[6], row[1]
  end
  local id, _, token, fields = entries.find(base .. ':fifo', row[1])
  if not fields or fields[1] == '' or exists(base .. ':job:' .. id) or plain.had_record(base, row[1]) then
    return id, nil, token
  end
  local started, lease = plain.claim_of(base, row, fields, call.now)
  plain.record_run(base, row[1], fields, started, lease, call.seen)
  return id, nil, token
end

-- Give records to up to n completed plain jobs, fewer if their payloads are large. Return how many jobs were found, 0
-- if none is left. A payload and a result are copied twice, which takes as long as freeing four times their bytes.
local SCANNED, COPYING = 2, 4
function plain.record_some(base, n, call_budget)
  local met, cursor = 0, '0'
  repeat
    local reply = redis.call('HSCAN', base .. ':results', cursor, 'COUNT', SCANNED)
    local found = reply[2]
    cursor = reply[1]
    for i = 1, #found, 2 do
      local raw, fields = plain.find(base, found[i])
      if raw then
        record_completed(base, raw, fields, found[i + 1])
        call_budget.bytes = call_budget.bytes + COPYING * (#fields[2] + #found[i + 1])
      else
        redis.call('HDEL', base .. ':results', found[i])
      end
      met = met + 1
      if met >= n or budget.is_spent(call_budget) then return met end
    end
  until cursor == '0'
  return met
end
