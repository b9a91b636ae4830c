-- claim: hand startable jobs to a worker that can start them now.
-- Every claimed job becomes a pending entry: of `stream` if it stood there, else of `lane`, where it is appended and
-- made pending in the same call (XCLAIM FORCE; `lane` is never read with XREADGROUP).
-- Order: `returned`, then `stream`. Bounded by slots and by bytes.

local claim = {}
local FIRST_STEP = 8
local LARGEST_STEP = 512
local MAX_BYTES = 1048576

-- The fields of a claimed job as its worker gets them, with id and entry; what: see record.lua. Answers nil when
-- there is no record, else also the job's last claim.
local read = {}

function read.i(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data')
  if not (job[1] and job[2]) then return nil end
  -- A table made at its size: growing the reply's own would cost more than making another.
  return {job[1], job[2], false, '1', id, entry}
end

function read.o(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts')
  if not (job[1] and job[2]) then return nil end
  return {job[1], job[2], job[3], '1', id, entry}
end

function read.h(key, id, entry)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'failures', 'stalls', 'added', 'progress',
    'letter')
  if not (job[1] and job[2]) then return nil end
  local before = job[4]
  local fence = before and digits(string.match(before, '^%d+') + 1) or '1'
  return {job[1], job[2], job[3], fence, id, entry, job[5], job[6], job[7], job[8], job[9]}, before
end

-- The lease of a job that asks for one of its own (opts, "l"), else the worker's.
local function lease_of(opts, lock)
  if not opts or not string.find(opts, '\161l', 1, true) then return lock end
  local readable, options = pcall(cmsgpack.unpack, opts)
  return readable and type(options) == 'table' and tonumber(options.l) or lock
end

-- Mark one job as running; since: " <started ms> ". Answers nil when it has no record.
local function start(base, what, id, entry, order, since, lock, lines)
  local key = base .. ':job:' .. id
  local job = (read[what] or read.h)(key, id, entry)
  if not job then return nil end
  local text = job[4] .. since .. lease_of(job[3], lock)
  if order then text = text .. ' ' .. order end
  redis.call('HSET', key, 'place', 'active ' .. entry, 'claim', text)
  events.note(lines, 'active', id)
  return job
end

local function drop_entries(stream, entries)
  if #entries == 0 then return end
  in_chunks('XACK', stream, GROUP, entries)
  in_chunks('XDEL', stream, nil, entries)
end

-- The ids among these whose time to live is over, as a set; nil when no job of the queue has one. All of them start
-- or fail now, so none has to be watched any more.
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

-- A job that cannot be started: there is no record, or one that somebody damaged.
local function refuse(base, id, entry, call)
  if redis.call('TYPE', base .. ':job:' .. id).ok == 'hash' then
    finish.fail(base, id, entry, 'malformed', call)
  else
    record.lost(base, id)
    events.note(call.lines, 'dropped', id, 'missing')
  end
end

-- Start the jobs that are now pending under these entries; bad ones are dropped from the batch, never wedge it.
local function start_batch(base, whats, ids, entries, orders, call, out)
  local now, lines, lock = call.now, call.lines, call.lock
  local expired, gone, bytes = expired_among(base, ids, now, call.seen), {}, 0
  local since = ' ' .. digits(now) .. ' '
  for i, id in ipairs(ids) do
    local entry = entries[i]
    if expired and expired[id] then
      gone[#gone + 1] = string.sub(entry, 2)
      if exists(base .. ':job:' .. id) then
        finish.fail(base, id, entry, 'expired', call)
      else
        record.lost(base, id)
      end
    else
      local job = start(base, call.seen.touched and 'h' or whats[i], id, entry, orders and orders[i], since, lock, lines)
      if job then
        out[#out + 1] = job
        bytes = bytes + #job[2]
      else
        gone[#gone + 1] = string.sub(entry, 2)
        refuse(base, id, entry, call)
      end
    end
  end
  if #gone > 0 then drop_entries((record.stream_of(base, entries[1])), gone) end
  return bytes
end

local function ensure_group(stream)
  redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
end
claim.ensure_group = ensure_group

local function read_new(base, consumer, count)
  local stream = base .. ':stream'
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  if reply and reply.err then
    ensure_group(stream)
    reply = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  end
  return reply and reply[1][2] or {}
end

local function from_stream(base, consumer, count, call, out)
  local whats, ids, entries = {}, {}, {}
  for i, entry in ipairs(read_new(base, consumer, count)) do
    whats[i], ids[i] = entry[2][1], entry[2][2]
    entries[i] = 's' .. entry[1]
  end
  return #ids, start_batch(base, whats, ids, entries, nil, call, out)
end

-- Append jobs to `lane` and make them pending for this consumer.
local function enter_lane(base, consumer, ids)
  local lane, entries, raw = base .. ':lane', {}, {}
  for i, id in ipairs(ids) do
    raw[i] = redis.call('XADD', lane, '*', 'h', id)
    entries[i] = 'l' .. raw[i]
  end
  local command = {'XCLAIM', lane, GROUP, consumer, 0}
  for _, entry in ipairs(raw) do command[#command + 1] = entry end
  for _, word in ipairs({'FORCE', 'JUSTID', 'LASTID', raw[#raw]}) do command[#command + 1] = word end
  local reply = redis.pcall(unpack(command))
  if reply.err then
    ensure_group(lane)
    redis.call(unpack(command))
  end
  return entries
end

local function from_returned(base, consumer, count, call, out)
  if not call.seen.returned then return 0, 0 end
  local popped = redis.call('ZPOPMIN', base .. ':returned', count)
  if #popped == 0 then return 0, 0 end
  local ids, orders = {}, {}
  for i = 1, #popped, 2 do
    ids[#ids + 1] = popped[i]
    orders[#orders + 1] = digits(tonumber(popped[i + 1]))
  end
  return #ids, start_batch(base, {}, ids, enter_lane(base, consumer, ids), orders, call, out)
end

-- Claim up to `slots` jobs in growing steps, so that large payloads stop it early. Answers the claimed jobs and
-- whether it stopped for their size. call: { now, lock, lines, seen }.
function claim.take(base, consumer, slots, call)
  local out, bytes, step = {}, 0, FIRST_STEP
  for _, source in ipairs({from_returned, from_stream}) do
    while #out < slots and bytes < MAX_BYTES do
      local wanted = math.min(step, slots - #out)
      local found, size = source(base, consumer, wanted, call, out)
      bytes = bytes + size
      if found < wanted then break end
      step = math.min(step * 2, LARGEST_STEP)
    end
  end
  return out, bytes >= MAX_BYTES and #out < slots
end

-- The jobs of an earlier claim that are still running under their entries: the answer to a claim sent twice.
-- claimed: flat { id, entry }.
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
