-- lease: gives a running job to one worker for as long as the worker renews it.
--   renewLeases  consumer info { id entry }*n -> { lost entries, revoked entries }
-- Renewing verifies a claim and never creates one: only entries that are pending for this consumer are renewed. A
-- repeated call has no second effect, so it carries no request number. O(n).
--   alive    zset  consumer -> last renewal ms;  workers  hash  consumer -> info
--   meta     hash  seen_at: last sign of life of any worker; gap: a time without one that counts as an outage, ms;
--            settled_since, away: when the last outage ended, and its length; server: the run id of the server that the
--            last sweep found; set_back: by how many ms the clock was set back, until a sweep has corrected the stored
--            instants
-- A renewed entry has a delivery count of 2. That proves that its worker received the claim (see stalled.lua).

local lease = {}
local RENEWED = 2

-- Return the run id of this server, and since when it runs. Returns nothing if the user may not run INFO (@dangerous).
local function server_of(now)
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return nil, nil end
  local id, uptime = string.match(info, 'run_id:(%w+)'), string.match(info, 'uptime_in_seconds:(%-?%d+)')
  return id, uptime and now - uptime * 1000
end

-- Return when an outage ended in which live workers could not renew; nil when there was none.
--
-- No worker gave a sign of life for some time. There are three possible causes, and each needs another result:
-- 1. A worker was present and could not reach the server: the server was down or hung, the machine slept, or the clock
-- was set forward. No worker could renew, so this time must not count against any lease. The caller knows, because it
-- was present before.
-- 2. No worker was present. The leases expired as they should, and the caller, which is new, may reclaim the jobs.
-- 3. No worker was present when the server went down or failed over. Then the run id has changed. A server that was
-- restarted has been reachable since its start. Of a replica that took over, nobody knows since when it has been the
-- primary.
local function end_of_outage(seen, now, newcomer, server, started, before)
  if not newcomer then return now end
  if server and server == before then return nil end
  if started and started > seen then return math.min(started, now) end
  return now
end

-- Note a sign of life: a renewal, or a sweep (which passes its gap_ms, see stalled.lua). Renewals count as much as
-- sweeps, because a worker whose loop is blocked sweeps late. The first sign of life after an outage notes its end.
-- newcomer: the caller was not present before. Return the last outage, for lease.counted.
function lease.sign_of_life(base, now, gap, newcomer)
  local meta = base .. ':meta'
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
  local newcomer = redis.call('ZADD', key, now, consumer) == 1
  lease.sign_of_life(base, now, nil, newcomer)
  if newcomer then redis.call('HSET', base .. ':workers', consumer, info) end
end

-- Return the named entries that are pending for this consumer, without their prefix. After a failover that
-- lost a claim, the entry may belong to another consumer, and XCLAIM would take it from that consumer.
local function own(stream, consumer, named)
  local first, last, held, found = string.sub(named[1], 2), string.sub(named[1], 2), {}, {}
  for _, entry in ipairs(named) do
    local raw = string.sub(entry, 2)
    if entries.before(raw, first) then first = raw elseif entries.before(last, raw) then last = raw end
  end
  local most = 2 * #named
  local rows = redis.pcall('XPENDING', stream, GROUP, first, last, most, consumer)
  if rows.err then return held end
  for _, row in ipairs(rows) do found[row[1]] = true end
  for _, entry in ipairs(named) do
    local raw = string.sub(entry, 2)
    -- The consumer has more pending entries than it named, and the range was cut off.
    if not found[raw] and #rows == most then
      found[raw] = redis.call('XPENDING', stream, GROUP, raw, raw, 1, consumer)[1] ~= nil
    end
    if found[raw] then held[#held + 1] = raw end
  end
  return held
end

-- Renew entries of one stream. `mine` receives the entries that still belong to the consumer, without their prefix.
local function renew(stream, consumer, named, mine)
  if #named == 0 then return end
  local held = own(stream, consumer, named)
  for from = 1, #held, CHUNK do
    local command = {'XCLAIM', stream, GROUP, consumer, 0}
    for i = from, math.min(from + CHUNK - 1, #held) do command[#command + 1] = held[i] end
    command[#command + 1] = 'RETRYCOUNT'
    command[#command + 1] = RENEWED
    command[#command + 1] = 'JUSTID'
    local reply = redis.pcall(unpack(command))
    if not reply.err then
      for _, raw in ipairs(reply) do mine[raw] = true end
    end
  end
end

register('renewLeases', function(base, args)
  local consumer, held, ids = args[1], {[base .. ':stream'] = {}, [base .. ':lane'] = {}}, {}
  for i = 3, #args, 2 do
    local list = held[(entries.stream_of(base, args[i + 1]))]
    list[#list + 1] = args[i + 1]
    ids[#ids + 1] = args[i]
  end
  report_alive(base, consumer, args[2], clock.now())
  local lost, revoked, renewed = {}, {}, {}
  for stream, named in pairs(held) do
    renewed[stream] = {}
    renew(stream, consumer, named, renewed[stream])
  end
  local function is_mine(entry)
    local stream, raw = entries.stream_of(base, entry)
    return renewed[stream][raw]
  end
  for i = 4, #args, 2 do
    if not is_mine(args[i]) then lost[#lost + 1] = args[i] end
  end
  if exists(base .. ':revoking') then
    for i, id in ipairs(ids) do
      local entry = args[2 + 2 * i]
      if is_mine(entry) and redis.call('SISMEMBER', base .. ':revoking', id) == 1 then revoked[#revoked + 1] = entry end
    end
  end
  return {lost, revoked}
end, {'allow-oom'})

lease.RENEWED = RENEWED
