-- claim: gives startable jobs to a worker that can start them now.
-- The entry of a claimed job that waited in `fifo` becomes pending. Any other claimed job gets a run in `runs`.
-- Order: `returned`; then `fifo`, `lifo` and the lines of keys in turn, so that none of them starves another; then,
-- when none of these has a job that can start, `prioritized`. A claim is limited by slots, by time, by bytes, and by
-- the number of jobs that cannot start (for example expired ones). It takes jobs in steps, and checks its budget after
-- each step.
--   meta2  hash  turn: the source in TURNS that came first in the last claim that found several of them

local claim = {}
local FIRST_STEP = 8
-- The first step of a queue whose last jobs were so small that MARGIN times their size would still fit.
local USUAL_STEP, MARGIN = 32, 8
-- The first step of such a queue if its last jobs had no records.
local CHEAP_STEP = 100
local LARGEST_STEP = 64
local LARGEST_COSTLY_STEP = 48
-- Keyed jobs take longer. The first step has LARGEST_STEP of them if the claim has this time left, in seconds.
local ENOUGH_FOR_KEYED = 0.0012
-- The bytes that a job which cannot start adds to the budget, so that a call does not walk through many of them.
local REFUSED_BYTES = 4096
local PROGRESS = claimed_rows.PROGRESS
local TURNS = {'fifo', 'lifo', 'ready'}

local read, own_lease, put = claimed_rows.read, claimed_rows.own_lease, claimed_rows.put
local put_plain, put_plain_rows = claimed_rows.put_plain, claimed_rows.put_plain_rows
local put_hand_over, put_compact = claimed_rows.put_hand_over, claimed_rows.put_compact

-- Mark one job as running and append it to `out`. Return its bytes, or nil when it has no record. first: the text
-- "1 <started ms> <lease ms>" of a plain first claim.
local function start(key, reader, id, entry, order, first, call, out)
  local name, data, opts, fence, history = reader(key)
  if not name then return nil end
  local claimed = first
  if opts or order or fence ~= '1' then
    local own = own_lease(opts, call)
    claimed = fence .. string.match(first, ' %d+ ') .. (own and digits(own) or string.match(first, '%d+$'))
    if order then claimed = claimed .. ' ' .. order end
  end
  if fence == '1' then
    redis.call('HSET', key, 'place', 'active ' .. entry, 'claim', claimed)
  else
    -- The worker of a first run that completes is not stored, which saves the field for most jobs.
    local runner = failure_groups.runner_of(call.base, call)
    redis.call('HSET', key, 'place', 'active ' .. entry, 'claim', claimed, 'runner', runner)
  end
  put(out, id, entry, name, data, opts, fence, history)
  return #data + #(type(history) == 'table' and history[PROGRESS] or '')
end

-- Return the ids whose time to live is over, as a set; nil when no job of the queue has one. This also removes all of
-- the ids from `expiry`, because their jobs start or fail now.
local function expired_among(base, ids, now, seen)
  local key = base .. ':expiry'
  if #ids == 0 or not seen.expiry then return nil end
  local expired = {}
  for i, instant in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
    if instant and tonumber(instant) <= now then expired[ids[i]] = true end
  end
  redis.call('ZREM', key, unpack(ids))
  return expired
end

-- Handle a job that cannot start: it has expired, it has no record, or its record was damaged by hand.
local function refuse(base, id, entry, key, expired, call)
  if key then
    keyed.release(base, {key}, call)
    keyed.refund(base, id, key, call)
  end
  local kind = redis.call('TYPE', base .. ':job:' .. id).ok
  if kind == 'hash' then
    finish.fail(base, id, entry, expired and 'expired' or 'malformed', call)
  else
    record.lost(base, id, call)
    events.note(call.lines, 'dropped', id, 'missing')
  end
end

-- Remove the runs of jobs of a batch that cannot start. which: their positions.
local function drop(base, batch, which)
  local keys = batch.keys
  for _, i in ipairs(which) do
    local token, id, key = batch.entries[i], batch.ids[i], keys and keys[i]
    if string.sub(token, 1, 1) == 'p' then
      entries.drop(base .. ':fifo', {string.sub(token, 2)})
    else
      runs.remove(base, {id}, {token}, {key})
    end
  end
end

-- Start the jobs that now run under these tokens. Bad jobs are dropped from the batch and never block it.
-- batch: { ids, entries } and, if the source has them, { whats, orders, keys, lines }, all by position; `what` applies
-- to all jobs. lines: the texts of the compact jobs.
local function start_batch(base, batch, call, out)
  local ids, whats, orders, keys = batch.ids, batch.whats, batch.orders, batch.keys
  local expired, gone, bytes = expired_among(base, ids, call.now, call.seen), {}, 0
  local first, posted = '1 ' .. digits(call.now) .. ' ' .. digits(call.lock), call.seen.posted or 0
  local touched, usual, prefix = call.seen.touched, read[batch.what] or read.h, base .. ':job:'
  local handed = call.seen.signalled and ids[1] and record.hand_overs(base, ids)    -- see signals.lua
  local line, lines, texts, run = nil, batch.lines, nil, nil
  local rest = string.sub(first, 2)
  for i = 1, #ids do
    local id, entry = ids[i], batch.entries[i]
    local late = expired and expired[id]
    local reader = touched and read.h or (whats and read[whats[i]]) or usual
    local size, text = nil, lines and lines[i]
    if not text and not late then
      size = start(prefix .. id, reader, id, entry, orders and orders[i], first, call, out)
      -- The flag of `compact` may be missing, see queue_flags.lua.
      text = not size and not lines and compact.line_of(base, id)
    end
    if text then
      size, run = put_compact(out, id, entry, text, rest, call)
      texts = texts or {}
      texts[#texts + 1], texts[#texts + 2] = id, run
    end
    if size then
      line = line or events.line(call.lines, 'active')
      line[#line + 1] = id
      bytes = bytes + size
      if handed then bytes = bytes + put_hand_over(out, handed[i]) end
    else
      gone[#gone + 1] = i
      bytes = bytes + REFUSED_BYTES
      refuse(base, id, entry, keys and keys[i], late, call)
    end
  end
  out.has_records = true
  if texts then compact.start(base, texts, call.seen) end
  if gone[1] then drop(base, batch, gone) end
  return bytes + (call.seen.posted or 0) - posted
end

-- Acknowledge the entries of completed plain jobs, which the server delivers again because the group was destroyed.
-- Return the other rows.
local function without_completed(base, rows)
  local rest, known = {}, {}
  for i, row in ipairs(rows) do
    local id = plain.id_of(row[1])
    if row[2][1] ~= '' and redis.call('HEXISTS', base .. ':results', id) == 1 then
      known[#known + 1] = row[1]
    else
      rest[#rest + 1] = row
    end
  end
  entries.acknowledge(base .. ':fifo', known)
  return rest
end

-- Return the new entries for a consumer, and how many were delivered.
local function read_new(base, consumer, count, call)
  local fifo = base .. ':fifo'
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', digits(count), 'STREAMS', fifo, '>')
  if reply and reply.err then
    entries.ensure_fifo_group(base)
    call.seen.regrouped = tonumber(redis.call('HGET', base .. ':meta2', 'regrouped') or nil)
    reply = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', digits(count), 'STREAMS', fifo, '>')
  end
  local rows = reply and reply[1][2] or {}
  if not rows[1] or not call.seen.regrouped then return rows, #rows end
  local last = tonumber(string.match(rows[#rows][1], '^%d+'))
  if last >= call.seen.regrouped then redis.call('HDEL', base .. ':meta2', 'regrouped') end
  return without_completed(base, rows), #rows
end

-- Return which of these entries belong to plain jobs with a record, by position.
local function recorded_among(base, rows)
  local raw = {}
  for i, row in ipairs(rows) do raw[i] = row[1] end
  return raw[1] and redis.call('SMISMEMBER', base .. ':recorded', unpack(raw))
end

-- Return the plain jobs among these entries whose time to live is over, as a set of ids; nil when no job of the queue
-- has a time to live.
local function expired_plain(base, rows, has_record, call)
  if not call.seen.expiry then return nil end
  local ids = {}
  for i, row in ipairs(rows) do
    if row[2][1] ~= '' and not (has_record and has_record[i] == 1) then ids[#ids + 1] = plain.id_of(row[1]) end
  end
  return expired_among(base, ids, call.now, call.seen)
end

-- Fail a plain job whose time to live is over. Return its bytes.
local function refuse_plain(base, row, call)
  local id = plain.id_of(row[1])
  plain.add_record(base, id, 'waiting', row[1], row[2], nil, call.seen)
  refuse(base, id, 'p' .. row[1], nil, true, call)
  entries.drop(base .. ':fifo', {row[1]})
  return REFUSED_BYTES
end

-- The sources. Each starts up to `count` jobs, and returns how many it took and their bytes.
local source = {}

-- Start the jobs of rows that may have records or times to live, one after another. Return their bytes.
local function start_rows(base, rows, call, out)
  local bytes, line, batch = 0, nil, nil
  local has_record = call.seen.recorded and recorded_among(base, rows)
  local expired = expired_plain(base, rows, has_record, call)
  for i = 1, #rows do
    local row = rows[i]
    if row[2][1] ~= '' and not (has_record and has_record[i] == 1) then
      if batch then bytes, batch = bytes + start_batch(base, batch, call, out), nil end
      if expired and expired[plain.id_of(row[1])] then
        bytes = bytes + refuse_plain(base, row, call)
      else
        line = line or events.line(call.lines, 'active')
        line[#line + 1] = plain.id_of(row[1])
        bytes = bytes + put_plain(out, row)
        if row[2][3] then own_lease(row[2][3], call) end
      end
    else
      batch = batch or {ids = {}, entries = {}, whats = {}}
      local n = #batch.ids + 1
      batch.ids[n], batch.entries[n] = entries.job_of(row[1], row[2]), 'p' .. row[1]
      batch.whats[n] = row[2][1] == '' and string.sub(row[2][2], 1, 1) or 'h'
    end
  end
  if batch then bytes = bytes + start_batch(base, batch, call, out) end
  return bytes
end

-- Jobs with and without records are in `fifo` in one order, and start in that order.
function source.fifo(base, consumer, count, call, out)
  local rows, found = read_new(base, consumer, count, call)
  local seen, first, bytes = call.seen, 1, 0
  if rows[1] then out.last_number = tonumber(string.match(rows[#rows][1], '^%d+')) end
  if not (seen.recorded or seen.expiry) then first, bytes = put_plain_rows(out, rows, call) end
  if first > 1 then rows = {unpack(rows, first)} end
  if rows[1] then bytes = bytes + start_rows(base, rows, call, out) end
  return found, bytes
end

-- Start jobs that did not wait in `fifo`. Return their number and their bytes.
local function start_elsewhere(base, consumer, batch, call, out)
  if #batch.ids == 0 then return 0, 0 end
  local bytes = compact_claims.size_of(batch, call)
  if bytes then
    compact_claims.start(base, consumer, batch, call, out)
    return #batch.ids, bytes
  end
  batch.entries = runs.start(base, consumer, batch.ids, batch.keys, call)
  if batch.members then batch.whats = keyed_claim.whats_of(batch.members) end
  return #batch.ids, start_batch(base, batch, call, out)
end

function source.returned(base, consumer, count, call, out)
  local batch = {ids = {}, orders = {}}
  local popped = redis.call('ZPOPMIN', base .. ':returned', digits(count))
  for i = 1, #popped, 2 do
    batch.ids[#batch.ids + 1] = popped[i]
    batch.orders[#batch.orders + 1] = digits(tonumber(popped[i + 1]))
  end
  return start_elsewhere(base, consumer, batch, call, out)
end

local function bytes_left(call)
  return call.budget.most - call.budget.bytes
end

function source.lifo(base, consumer, count, call, out)
  local key, batch = base .. ':lifo', {what = 'w'}
  local ids = redis.call('ZREVRANGE', key, '0', digits(count - 1))
  local lines, fit = compact.lines_within(base, ids, bytes_left(call), call.seen)
  if fit > 0 then redis.call('ZREMRANGEBYRANK', key, digits(-fit), '-1') end
  batch.ids, batch.lines = fit < #ids and {unpack(ids, 1, fit)} or ids, lines
  return start_elsewhere(base, consumer, batch, call, out)
end

function source.prioritized(base, consumer, count, call, out)
  local batch = {what = 'w'}
  batch.ids, batch.lines = prioritized.take(base, count, bytes_left(call), call.seen)
  return start_elsewhere(base, consumer, batch, call, out)
end

function source.ready(base, consumer, count, call, out)
  keyed.review(base, call, true)
  local batch = keyed_claim.pop(base, count, call)
  batch.lines = compact.lines(base, batch.ids, call.seen)
  local found, bytes = start_elsewhere(base, consumer, batch, call, out)
  -- A job that could not start makes room in its key for the next one.
  return keyed.has_review(call) and count or found, bytes
end

-- The mean size of the jobs of the last claim on this server, in any queue. Without it, the first step of each claim
-- would return FIRST_STEP large payloads. It is only a guess: another queue may have had that claim. usual_base: the
-- queue that had it. usual_records: whether some of the jobs had records; last_number: the number of the last entry of
-- `fifo` that it claimed
local usual_bytes, usual_base, usual_records, last_number = 0, nil, false, 0

-- Return the number of jobs that a step should handle, at most `step`. The payloads of that number are probably not
-- larger than the payloads of a claim may be. For steps that read or copy payloads.
function claim.usual_step(step)
  if usual_bytes * step <= budget.CLAIMED_BYTES then return step end
  return math.max(1, math.floor(budget.CLAIMED_BYTES / usual_bytes))
end

-- Note the size of the jobs of a direct claim.
function claim.note_small()
  usual_bytes = math.min(usual_bytes, entries.SMALL)
end

-- Return true if a claim of 100 jobs may have large ones or jobs with records, as far as the last claim shows. The
-- sources of compact jobs limit the bytes of a step themselves.
local function may_be_costly(name, seen)
  return usual_records or name == 'returned' or name == 'fifo' and (seen.special or 0) > last_number
end

-- Return how many jobs the first step of a claim takes from a source, at most `largest`.
local function first_step(name, base, largest, call)
  local call_budget = call.budget
  local rest, most = name == 'ready' and budget.begin_claim(call_budget), call_budget.most
  if usual_base == base and usual_bytes > 0 and usual_bytes * MARGIN * USUAL_STEP < most then
    if may_be_costly(name, call.seen) or usual_bytes * MARGIN * CHEAP_STEP >= most then return USUAL_STEP end
    if not rest then return CHEAP_STEP end
    return rest >= ENOUGH_FOR_KEYED and largest or USUAL_STEP
  end
  if usual_bytes * FIRST_STEP > most then return math.max(1, math.floor(most / usual_bytes)) end
  return FIRST_STEP
end

-- Take from one source in growing steps until it is empty, `most` jobs are claimed, or the budget is spent. Return true
-- if the source is empty. The first step does not look at the budget, so that each claim starts a job.
local function take_from(name, base, consumer, most, call, out)
  local call_budget = call.budget
  local largest = name == 'ready' and keyed.is_costly(call.seen) and LARGEST_COSTLY_STEP or LARGEST_STEP
  local step = first_step(name, base, largest, call)
  while true do
    local wanted = math.min(step, most - out.n)
    local found, size = source[name](base, consumer, wanted, call, out)
    call_budget.bytes = call_budget.bytes + size
    if found < wanted and call_budget.bytes < call_budget.most then return true end
    if out.n >= most or budget.has_claimed_enough(call_budget) then return false end
    -- The next step may have as many jobs of the same size as the bytes still allow.
    step = math.min(step * 2, largest, math.ceil((call_budget.most - call_budget.bytes) * found / math.max(1, size)))
    step = budget.fitting_claim(call_budget, found, step)
  end
end

-- Return true if the claim should take from another source. If the sources so far had no job, it does so even when the
-- budget is spent. Otherwise due jobs that come faster than they are promoted could keep it from starting any job.
local function is_unfinished(slots, call, out)
  return out.n < slots and (out.n == 0 or not budget.has_claimed_enough(call.budget))
end

-- Return the positions in TURNS of the sources that may have jobs, starting after the source that came first in the
-- last claim. freed: the keys of keyed.review
local function turns_of(seen, freed)
  local last, names = seen.turn, {}
  for i = last, last + 2 do
    local turn = i % #TURNS + 1
    if turn == 1 or seen[TURNS[turn]] or (freed and TURNS[turn] == 'ready') then names[#names + 1] = turn end
  end
  return names
end

-- Return the names of all sources that may have jobs, in the order in which the next claim asks them.
function claim.sources(seen)
  local names = {}
  if seen.returned then names[1] = 'returned' end
  for _, turn in ipairs(turns_of(seen)) do names[#names + 1] = TURNS[turn] end
  if seen.prioritized then names[#names + 1] = 'prioritized' end
  return names
end

-- Take jobs from several sources. Each gets its share, starting after the source that came first in the last claim.
local function take_turns(base, consumer, slots, call, out)
  local last, names, at, first = call.seen.turn, turns_of(call.seen, call.freed), 1, nil
  repeat
    if at > #names then at = 1 end
    local before = out.n
    local share = math.ceil((slots - before) / #names)
    local dry = take_from(TURNS[names[at]], base, consumer, math.min(slots, before + share), call, out)
    if out.n > before then first = first or names[at] end
    if dry then table.remove(names, at) else at = at + 1 end
  until #names == 0 or not is_unfinished(slots, call, out)
  if first and first ~= last then redis.call('HSET', base .. ':meta2', 'turn', first) end
end

-- Claim up to `slots` jobs. Return them as they are sent, with their number `n` and their `tokens`. The second value is
-- true if the budget was spent before all slots were used, so that the caller should claim again. call: with lock, the
-- caller's lease; budget; and behind, true if some due jobs may not be promoted yet. One of these may come before the
-- jobs in `prioritized`, which then do not start.
function claim.take(base, consumer, slots, call)
  call.base = base
  local out, seen, call_budget = {n = 0, tokens = {}}, call.seen, call.budget
  if seen.returned then take_from('returned', base, consumer, slots, call, out) end
  if not seen.returned or is_unfinished(slots, call, out) then
    if seen.lifo or seen.ready or call.freed then
      take_turns(base, consumer, slots, call, out)
    else
      take_from('fifo', base, consumer, slots, call, out)
    end
  end
  if seen.prioritized and not call.behind and is_unfinished(slots, call, out) then
    take_from('prioritized', base, consumer, slots, call, out)
  end
  if out.n > 0 then
    if out.last_number or usual_base ~= base then last_number = out.last_number or 0 end
    usual_bytes, usual_base, usual_records = call_budget.bytes / out.n, base, out.has_records
  end
  keyed.review(base, call)
  return out, call_budget.spent and out.n < slots
end

-- Read a compact job of an earlier claim again, if it still runs under its token.
local function reread_compact(base, id, token, out)
  local lines, runs = compact.lines(base, {id}, {compact = true}), compact.runs(base, {id}, {compact = true})
  if not lines[1] or not compact.is_run(runs[1], token) then return end
  local head, name, data, opts = compact.parts(lines[1])
  put(out, id, token, name, data, opts, '1', compact.history_of(head))
end

-- Read one job of an earlier claim again, if it still runs under its token. id: of a job that waited outside of `fifo`.
local function reread(base, token, id, out)
  local raw, fields = string.sub(token, 2), nil
  if not id then
    local found, _, _, values = entries.find(base .. ':fifo', raw)
    if not found then return end
    id, fields = found, values
  end
  local key = base .. ':job:' .. id
  local location = redis.call('HGET', key, 'place')
  if location == 'active ' .. token then
    local name, data, opts, _, history, last = read.h(key)
    put(out, id, token, name, data, opts, string.match(last, '^%d+'), history)
    put_hand_over(out, record.hand_overs(base, {id})[1])
  elseif not location and fields and fields[1] ~= '' and plain.look(base, id) == 'active' then
    put_plain(out, {raw, fields})
  elseif not location and not fields then
    reread_compact(base, id, token, out)
  end
end

-- Return the jobs of an earlier claim that still run under their tokens, as the reply to a repeated claim.
function claim.reread(base, consumer, tokens)
  local out = {n = 0, tokens = {}}
  local list, ids = claim_tokens.each(base, consumer, tokens)
  for i, token in ipairs(list) do reread(base, token, ids[i], out) end
  return out
end
