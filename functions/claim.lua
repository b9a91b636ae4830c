-- claim: gives startable jobs to a worker that can start them now.
-- Every claimed job becomes a pending entry: of `stream` if it waited there, otherwise of `lane`, the active stream. A
-- job is appended to `lane` and made pending in the same call (XCLAIM FORCE; `lane` is never read with XREADGROUP).
-- Order: `returned`; then `stream`, `lifo` and the lines of keys in turn, so that none of them starves another; then,
-- when none of these has a job that can start, `prioritized`. A claim is limited by slots, by bytes, and by the number
-- of jobs that cannot start (for example expired ones).
--   meta  hash  turn: the source in TURNS that came first in the last claim that found several of them

local claim = {}
local FIRST_STEP = 8
local LARGEST_STEP = 512
local MAX_BYTES = 1048576
-- the size that a job counts for if it does not start, so that a call never walks many of them
local REFUSED_BYTES = 4096
local PROGRESS = 10              -- position of the progress of a job with a history; it may be as large as the data
local TURNS = {'stream', 'lifo', 'ready'}

-- The readers of a claimed job, by read hint (see record.lua). A reader returns the fields in the order in which the
-- worker expects them, with id and entry, and the job's last claim. It returns nil if the record is missing.
local read = {}

function read.i(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data')
  if not (job[1] and job[2]) then return nil end
  -- A table constructor with all fields: growing the reply's table would cost more than a new one.
  return {job[1], job[2], false, '1', id, entry}
end

function read.o(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts')
  if not (job[1] and job[2]) then return nil end
  return {job[1], job[2], job[3], '1', id, entry}
end

function read.h(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'failures', 'stalls', 'added', 'progress',
    'route', 'letter')
  if not (job[1] and job[2]) then return nil end
  local before = job[4]
  local fence = before and digits(string.match(before, '^%d+') + 1) or '1'
  return {job[1], job[2], job[3], fence, id, entry, job[5], job[6], job[7], job[8], job[9],
    job[10]}, before
end

-- The same fields as read.h for a job that waited outside of the stream: usually it never ran and has no history.
function read.w(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'added', 'route', 'letter')
  if not (job[1] and job[2]) then return nil end
  if job[4] and job[4] ~= '0 0 0' then return read.h(key, id, entry) end
  return {job[1], job[2], job[3], '1', id, entry, false, false, job[5], false, job[6], job[7]}
end

-- A keyed job that never ran: the same as read.i and read.o, and its route.
function read.fi(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'route')
  if not (job[1] and job[2]) then return nil end
  return {job[1], job[2], false, '1', id, entry, job[3]}
end

function read.fo(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'route')
  if not (job[1] and job[2]) then return nil end
  return {job[1], job[2], job[3], '1', id, entry, job[4]}
end

-- Return the lease of a job that has a lease option (opts, "l"), otherwise the worker's; as text.
local function lease_of(opts, lock)
  if not string.find(opts, '\161l', 1, true) then return lock end
  local readable, options = pcall(cmsgpack.unpack, opts)
  local own = readable and type(options) == 'table' and tonumber(options.l)
  return own and digits(own) or lock
end

-- Mark one job as running; since: " <started ms> ". Return nil when it has no record.
local function start(base, what, id, entry, order, since, lock, call)
  local key = base .. ':job:' .. id
  local job = (read[what] or read.h)(key, id, entry)
  if not job then return nil end
  local text = job[4] .. since .. (job[3] and lease_of(job[3], lock) or lock)
  if order then text = text .. ' ' .. order end
  redis.call('HSET', key, 'place', 'active ' .. entry, 'claim', text)
  events.note(call.lines, 'active', id)
  return job
end

-- Return the set of those ids whose time to live is over; nil when no job of the queue has one. All of the ids start or
-- fail now, so none needs to be watched any more.
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

-- Start the jobs that are now pending under these entries. Bad jobs are dropped from the batch and never block it.
-- batch: { ids, entries } and, if the source has them, { whats, orders, keys }, all by position; `what` applies to all
-- jobs.
local function start_batch(base, batch, call, out)
  local ids, lock = batch.ids, digits(call.lock)
  local whats, orders, keys = batch.whats, batch.orders, batch.keys
  local expired, gone, bytes = expired_among(base, ids, call.now, call.seen), {}, 0
  local since, posted = ' ' .. digits(call.now) .. ' ', call.seen.posted or 0
  for i, id in ipairs(ids) do
    local entry, late = batch.entries[i], expired and expired[id]
    local what = not call.seen.touched and (whats and whats[i] or batch.what) or 'h'
    local job = not late and start(base, what, id, entry, orders and orders[i], since, lock, call)
    if job then
      out[#out + 1] = job
      bytes = bytes + #job[2] + #(job[PROGRESS] or '')
    else
      gone[#gone + 1] = string.sub(entry, 2)
      bytes = bytes + REFUSED_BYTES
      refuse(base, id, entry, keys and keys[i], late, call)
    end
  end
  if #gone > 0 then entries.drop(entries.stream_of(base, batch.entries[1]), gone) end
  return bytes + (call.seen.posted or 0) - posted
end

local function read_new(base, consumer, count)
  local stream = base .. ':stream'
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  if reply and reply.err then
    entries.ensure_group(stream)
    reply = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  end
  return reply and reply[1][2] or {}
end

-- Append jobs to `lane` and make them pending for this consumer. Return their entries.
local function enter_active_stream(base, consumer, ids, keys)
  local stream, made, prefix, n = base .. ':lane', {}, keys and 'k' or 'l', #ids
  local command = {'XCLAIM', stream, GROUP, consumer, 0}
  for i = 1, n do
    local raw = redis.call('XADD', stream, '*', keys and 'k' .. keys[i] or 'h', ids[i])
    made[i], command[i + 5] = prefix .. raw, raw
  end
  command[n + 6], command[n + 7], command[n + 8], command[n + 9] = 'FORCE', 'JUSTID', 'LASTID', command[n + 5]
  local reply = redis.pcall(unpack(command))
  if reply.err then
    entries.restore_active_stream(base, '(' .. command[6])
    redis.call(unpack(command))
  end
  return made
end

-- The sources. Each starts up to `count` jobs, and returns how many it took and their bytes.
local source = {}

function source.stream(base, consumer, count, call, out)
  local batch = {ids = {}, entries = {}, whats = {}}
  for i, entry in ipairs(read_new(base, consumer, count)) do
    batch.whats[i], batch.ids[i] = entry[2][1], entry[2][2]
    batch.entries[i] = 's' .. entry[1]
  end
  return #batch.ids, start_batch(base, batch, call, out)
end

local function start_in_active_stream(base, consumer, batch, call, out)
  if #batch.ids == 0 then return 0, 0 end
  batch.entries = enter_active_stream(base, consumer, batch.ids, batch.keys)
  return #batch.ids, start_batch(base, batch, call, out)
end

function source.returned(base, consumer, count, call, out)
  local batch = {ids = {}, orders = {}}
  local popped = redis.call('ZPOPMIN', base .. ':returned', count)
  for i = 1, #popped, 2 do
    batch.ids[#batch.ids + 1] = popped[i]
    batch.orders[#batch.orders + 1] = digits(tonumber(popped[i + 1]))
  end
  return start_in_active_stream(base, consumer, batch, call, out)
end

function source.lifo(base, consumer, count, call, out)
  local batch = {ids = {}, what = 'w'}
  local popped = redis.call('ZPOPMAX', base .. ':lifo', count)
  for i = 1, #popped, 2 do batch.ids[#batch.ids + 1] = popped[i] end
  return start_in_active_stream(base, consumer, batch, call, out)
end

function source.prioritized(base, consumer, count, call, out)
  local batch = {ids = {}, what = 'w'}
  local popped = redis.call('ZPOPMIN', base .. ':prioritized', count)
  for i = 1, #popped, 2 do batch.ids[#batch.ids + 1] = string.sub(popped[i], 17) end
  return start_in_active_stream(base, consumer, batch, call, out)
end

function source.ready(base, consumer, count, call, out)
  keyed.review(base, call)
  local batch = keyed_claim.pop(base, count, call)
  local found, bytes = start_in_active_stream(base, consumer, batch, call, out)
  -- A job that could not start makes room in its key for the next one.
  return call.touched and count or found, bytes
end

-- Take from one source in growing steps, so that large payloads stop it early, until it is empty or `most` jobs are
-- claimed. Return the bytes so far, and true if the source is empty.
local function take_from(name, base, consumer, most, bytes, call, out)
  local step = FIRST_STEP
  while #out < most and bytes < MAX_BYTES do
    local wanted = math.min(step, most - #out)
    local found, size = source[name](base, consumer, wanted, call, out)
    bytes = bytes + size
    if found < wanted then return bytes, true end
    step = math.min(step * 2, LARGEST_STEP)
  end
  return bytes, false
end

-- Several sources have jobs. Each gets its share, starting after the source that came first in the last claim.
local function take_turns(base, consumer, slots, bytes, call, out)
  local last, names, at, first = call.seen.turn, {}, 1, nil
  for i = last, last + 2 do
    local turn = i % #TURNS + 1
    if turn == 1 or call.seen[TURNS[turn]] then names[#names + 1] = turn end
  end
  while #names > 0 and #out < slots and bytes < MAX_BYTES do
    if at > #names then at = 1 end
    local before, dry = #out, nil
    local share = math.ceil((slots - before) / #names)
    bytes, dry = take_from(TURNS[names[at]], base, consumer, math.min(slots, before + share), bytes, call, out)
    if #out > before then first = first or names[at] end
    if dry then table.remove(names, at) else at = at + 1 end
  end
  if first and first ~= last then redis.call('HSET', base .. ':meta', 'turn', first) end
  return bytes
end

-- Claim up to `slots` jobs. Return them, and true if the claim stopped early because of its size: then the caller
-- should claim again. call: with lock, the caller's lease; behind, if some due jobs may not be promoted yet: one of
-- them may come before the jobs of `prioritized`.
function claim.take(base, consumer, slots, call)
  local out, bytes, seen = {}, 0, call.seen
  if seen.returned then bytes = take_from('returned', base, consumer, slots, bytes, call, out) end
  if #out < slots and bytes < MAX_BYTES then
    if seen.lifo or seen.ready then
      bytes = take_turns(base, consumer, slots, bytes, call, out)
    else
      bytes = take_from('stream', base, consumer, slots, bytes, call, out)
    end
  end
  if seen.prioritized and not call.behind then
    bytes = take_from('prioritized', base, consumer, slots, bytes, call, out)
  end
  keyed.review(base, call)
  return out, bytes >= MAX_BYTES and #out < slots
end

-- Return the jobs of an earlier claim that still run under their entries, as the reply to a repeated claim. claimed:
-- flat { id, entry }.
function claim.reread(base, claimed)
  local out = {}
  for i = 1, #claimed, 2 do
    local id, entry = claimed[i], claimed[i + 1]
    local key = base .. ':job:' .. id
    if redis.call('HGET', key, 'place') == 'active ' .. entry then
      local job, last = read.h(key, id, entry)
      job[4] = string.match(last, '^%d+')
      out[#out + 1] = job
    end
  end
  return out
end
