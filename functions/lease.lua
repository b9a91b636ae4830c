-- lease: gives a running job to one worker for as long as the worker renews it.
--   renewLeases  consumer info answered in_transit { id entry started }*n -> { lost entries, revoked entries }
--     started     when the run of a plain job began, ms; '' for any other job
--     answered    number of the consumer's last settle call that has a reply; 0: verify who owns each entry
--     in_transit  number of the settle call whose reply is on its way, 0 for none: renew the jobs that it claimed too
--   endRuns      consumer { entry }*n -> number of these runs that were stopping, see stopping.lua; at most 20 entries
--   describeWorker  consumer info -> 0 | 1    replace the description of a worker that is present
--   tellWorker  consumer command -> number of receivers: 0 if the worker does not listen, -1 if the caller may not
--               publish. command: "pause", "resume", "stop" or "concurrency <n>"
-- Renewing verifies a claim and never creates one: only runs that belong to this consumer are renewed. A
-- repeated call has no second effect, so it carries no request number. O(n).
--   alive    zset  consumer -> last renewal ms;  workers  hash  consumer -> info
--   meta2    hash  seen_at: last sign of life of any worker; gap: a time without one that counts as an outage, ms;
--            settled_since, away: when the last outage ended, and its length; server: the run id of the server that the
--            last sweep found; set_back: by how many ms the clock was set back, until a sweep has corrected the stored
--            instants
-- A renewed entry of `fifo` has a delivery count of 2. That proves that its worker received the claim (see
-- stalled.lua). A renewed run outside of `fifo` has a mark instead, see runs.lua.

local lease = {}
local RENEWED = runs.RENEWED
local FIRST_TOKEN = 6            -- the position of the first entry in the arguments of a renewal
local FIELDS = 3
local OF_FIFO = 112              -- the byte "p", the first of a token of `fifo`
local MOST_ENDED = 20

-- Return the run id of this server, and since when it runs. Returns nothing if the user may not run INFO (@dangerous).
local function server_of(now)
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return nil, nil end
  local id, uptime = string.match(info, 'run_id:(%w+)'), string.match(info, 'uptime_in_seconds:(%-?%d+)')
  return id, uptime and now - uptime * 1000
end

-- Return when the last outage ended in which live workers could not renew, or nil without an outage.
--
-- A lease must not expire because the server was unreachable: its worker could not renew it. A lease must expire if its
-- worker is gone. When no worker has renewed for a while, this function decides which of the two happened:
-- 1. The caller was present before. Then it could not reach the server either: the server was down or hung, the machine
--    slept, or the clock was set forward. This was an outage, and it ends now.
-- 2. The caller is new, and the server has the same run id as before. The server was up and no worker was present. This
--    was no outage, so the caller may reclaim the jobs of the workers that are gone.
-- 3. The caller is new, and the run id has changed. The server was restarted, or a replica took over. The outage ended
--    when the server started. A replica started before it took over, and the moment of the takeover is unknown, so the
--    outage ends now.
local function end_of_outage(seen, now, newcomer, server, started, before)
  if not newcomer then return now end
  if server and server == before then return nil end
  if started and started > seen then return math.min(started, now) end
  return now
end

-- Note a sign of life of a worker: a renewal or a sweep. The first one after an outage stores the end of the outage.
-- Renewals count too, because a worker whose event loop is blocked still renews but does not sweep. gap: set by a
-- sweep, the time without a sign of life that counts as an outage, ms. newcomer: the caller was not present before.
-- Return the last outage, for lease.counted.
function lease.sign_of_life(base, now, gap, newcomer)
  local meta = base .. ':meta2'
  local known = redis.call('HMGET', meta, 'seen_at', 'settled_since', 'gap', 'away', 'server')
  local seen, since, away = tonumber(known[1] or nil), tonumber(known[2] or nil), tonumber(known[4] or nil)
  local limit, server, started = gap or tonumber(known[3] or nil), nil, nil
  if gap or newcomer then server, started = server_of(now) end
  if not seen or not since then
    since, away = now, 0         -- the queue is new
  elseif clock.is_ahead(seen, now) then
    redis.call('HINCRBY', meta, 'set_back', digits(seen - now))
  elseif limit and now - seen > limit then
    local ended = end_of_outage(seen, now, newcomer, server, started, known[5])
    if ended then
      -- The server was back for so short a time that not every worker could renew: it is the same outage.
      local began = seen - since < limit and since - (away or 0) or seen
      since, away = ended, ended - began
    end
  end
  since, away = math.min(since, now), away or now
  redis.call('HSET', meta, 'seen_at', now, 'settled_since', since, 'away', away)
  if gap then redis.call('HSET', meta, 'gap', gap) end
  if server and server ~= known[5] then redis.call('HSET', meta, 'server', server) end
  return {settled = now - since, away = away}
end

-- Return how much of the time since a renewal counts against the lease: all but the part in the last outage. At most
-- the length of that outage is left out, so a lease expires however often outages occur.
function lease.counted(idle, outage)
  return idle - math.min(math.max(0, idle - outage.settled), outage.away)
end

local function report_alive(base, consumer, info, now)
  local key = base .. ':alive'
  local newcomer = redis.call('ZADD', key, digits(now), consumer) == 1
  lease.sign_of_life(base, now, nil, newcomer)
  if newcomer then redis.call('HSET', base .. ':workers', consumer, info) end
end

-- Return the entries that are pending for this consumer. After a failover that lost a claim, an entry may belong to
-- another consumer, and XCLAIM would take it from that consumer.
local function own(stream, consumer, raw)
  local first, last, held, found = raw[1], raw[1], {}, {}
  for _, id in ipairs(raw) do
    if entries.before(id, first) then first = id elseif entries.before(last, id) then last = id end
  end
  local most = 2 * #raw
  local rows = redis.pcall('XPENDING', stream, GROUP, first, last, most, consumer)
  if rows.err then return held end
  for _, row in ipairs(rows) do found[row[1]] = true end
  for _, id in ipairs(raw) do
    -- The reply was cut off at `most` rows, because the range holds pending entries that the consumer did not name.
    if not found[id] and #rows == most then
      found[id] = redis.call('XPENDING', stream, GROUP, id, id, 1, consumer)[1] ~= nil
    end
    if found[id] then held[#held + 1] = id end
  end
  return held
end

-- Renew entries of `fifo`. received: the worker has received the claim. Return the pending ones.
local function extend(stream, consumer, raw, received)
  local renewed = {}
  for from = 1, #raw, CHUNK do
    local command = {'XCLAIM', stream, GROUP, consumer, '0', unpack(raw, from, math.min(from + CHUNK - 1, #raw))}
    local n = #command
    if received then command[n + 1], command[n + 2], n = 'RETRYCOUNT', RENEWED, n + 2 end
    command[n + 1] = 'JUSTID'
    local reply = redis.pcall(unpack(command))
    if from == 1 and #raw <= CHUNK and not reply.err then return reply end
    for _, id in ipairs(reply.err and {} or reply) do renewed[#renewed + 1] = id end
  end
  return renewed
end

-- Return true if a call of this number is the last one of the consumer's request channel that the server knows.
local function is_last_call(base, consumer, number)
  local kept = number ~= '0' and redis.call('GET', base .. ':call:' .. consumer)
  return kept and string.sub(kept, 1, #number + 1) == number .. ' '
end

-- Return the ids of the entries of `fifo`, and the other tokens. The tokens are at every `step`th position from `at`.
local function sorted(tokens, at, step)
  local waited, others = {}, {}
  for i = at, #tokens, step do
    local token = tokens[i]
    if string.byte(token) == OF_FIFO then
      waited[#waited + 1] = string.sub(token, 2)
    else
      others[#others + 1] = token
    end
  end
  return waited, others
end

-- Renew the jobs of a claim whose reply the worker has not received yet. A large payload on a slow connection can take
-- longer than a lease. The worker does not know these jobs, so it names the number of its call. The entries keep their
-- delivery count and the other runs get no mark, because the worker has not received the claim.
local function renew_in_transit(base, consumer, number)
  if not is_last_call(base, consumer, number) then return end
  local waited, others = sorted(settle.claimed_last(base, consumer), 1, 1)
  extend(base .. ':fifo', consumer, waited, false)
  runs.renew(base, consumer, others, false, clock.now())
end

-- Return the tokens among args that were not renewed, and the tokens of revoked jobs.
local function sort_out(base, args, renewed, revoking)
  local lost, revoked = {}, {}
  for i = FIRST_TOKEN, #args, FIELDS do
    local token = args[i]
    local is_renewed = renewed[token]
    if string.byte(token) == OF_FIFO then is_renewed = renewed[string.sub(token, 2)] end
    if not is_renewed then
      lost[#lost + 1] = token
    elseif revoking and redis.call('SISMEMBER', base .. ':revoking', args[i - 1]) == 1 then
      revoked[#revoked + 1] = token
    end
  end
  if lost[1] then stopping.renew(base, args[1], lost, clock.now()) end
  return {lost, revoked}
end

local function as_set(list, more)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  for _, item in ipairs(more or {}) do set[item] = true end
  return set
end

-- Return the set of those entries of `fifo` whose plain jobs have no record.
local function without_records(base, raw)
  local set = as_set(raw)
  if not exists(base .. ':recorded') then return set end
  for from = 1, #raw, CHUNK do
    local last = math.min(from + CHUNK - 1, #raw)
    for i, known in ipairs(redis.call('SMISMEMBER', base .. ':recorded', unpack(raw, from, last))) do
      if known == 1 then set[raw[from + i - 1]] = nil end
    end
  end
  return set
end

-- Store when the renewed plain runs began, because renewing resets the idle time of their entries. A record holds that
-- time itself.
local function note_starts(base, args, renewed)
  if not renewed[1] then return end
  local held, flat = without_records(base, renewed), {}
  for i = FIRST_TOKEN, #args, FIELDS do
    local raw = string.sub(args[i], 2)
    if args[i + 1] ~= '' and held[raw] then flat[#flat + 1], flat[#flat + 2] = plain.id_of(raw), args[i + 1] end
  end
  if flat[1] then in_chunks('HSET', queue_flags.create(base, 'started'), nil, flat) end
end

register('renewLeases', function(base, args)
  integer('answered', args[3])
  integer('in_transit', args[4])
  queue_flags.require(base)
  local consumer, stream = args[1], base .. ':fifo'
  local now = clock.now()
  report_alive(base, consumer, args[2], now)
  local waited, others = sorted(args, FIRST_TOKEN, FIELDS)
  local n = #waited + #others
  -- Replication keeps the order of writes, so a server that knows the worker's last call knows every claim before it.
  -- Then each pending entry is the worker's. Otherwise it is verified, which takes a third of the time of a renewal.
  if n > 0 and not is_last_call(base, consumer, args[3]) then
    waited = waited[1] and own(stream, consumer, waited) or waited
  end
  waited, others = extend(stream, consumer, waited, true), runs.renew(base, consumer, others, true, now)
  note_starts(base, args, waited)
  renew_in_transit(base, consumer, args[4])
  local revoking = exists(base .. ':revoking')
  if not revoking and #waited + #others == n then return {{}, {}} end
  return sort_out(base, args, as_set(waited, others), revoking)
end, {'allow-oom'})

register('endRuns', function(base, args)
  if #args > MOST_ENDED + 1 then fail('ARGUMENT', 'at most ' .. MOST_ENDED .. ' runs a call, found ' .. #args - 1) end
  if not exists(base .. ':stopping') then return 0 end
  local call, ended = queue_flags.call(base), {}
  for i = 2, #args do ended[i - 1] = args[i] end
  local count = stopping.finish(base, args[1], ended, call)
  if count > 0 then wakeup.finish(base, call) end
  return count
end, {'allow-oom'})

register('describeWorker', function(base, args)
  if not redis.call('ZSCORE', base .. ':alive', args[1]) then return 0 end
  redis.call('HSET', base .. ':workers', args[1], args[2])
  return 1
end, {'allow-oom'})

register('tellWorker', function(base, args)
  if not redis.call('ZSCORE', base .. ':alive', args[1]) then return 0 end
  local heard = redis.pcall('SPUBLISH', base .. ':wake:' .. args[1], 'c ' .. args[2])
  return type(heard) == 'number' and heard or -1
end, {'allow-oom'})
