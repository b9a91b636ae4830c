-- lease: a running job stays its worker's while the worker renews it.
--   renewLeases  consumer info { id entry }*n -> { lost entries, revoked entries }
-- Renewing proves a claim, it never makes one: XCLAIM without FORCE touches only entries that are still pending, and
-- no entry ever changes consumer. Sent twice it does the same, so it carries no request number. O(n).
--   alive    zset  consumer -> last renewal ms;  workers  hash  consumer -> info

local lease = {}

-- A sign of life: a renewal, or a sweep (which brings its gap_ms, see stalled.lua). Renewals count as much as sweeps
-- do, for a worker whose loop is blocked sweeps late; and whichever comes first after an outage notes its end, else the
-- others would be judged by the time in which nobody could renew. Answers since when pending times mean what they say.
function lease.sign_of_life(base, now, gap)
  local meta = base .. ':meta'
  local known = redis.call('HMGET', meta, 'seen_at', 'settled_since', 'gap')
  local limit, since = gap or tonumber(known[3] or nil), tonumber(known[2] or nil)
  if not since or (limit and now - known[1] > limit) then since = now end
  redis.call('HSET', meta, 'seen_at', now, 'settled_since', since)
  if gap then redis.call('HSET', meta, 'gap', gap) end
  return since
end

local function report_alive(base, consumer, info, now)
  lease.sign_of_life(base, now)
  if redis.call('ZADD', base .. ':alive', now, consumer) == 1 then
    redis.call('HSET', base .. ':workers', consumer, info)
  end
end

-- Renew entries of one stream; `mine` gets those that are still the consumer's, as they were named.
local function renew(stream, consumer, named, mine)
  if #named == 0 then return end
  for from = 1, #named, CHUNK do
    local command, names = {'XCLAIM', stream, GROUP, consumer, 0}, {}
    for i = from, math.min(from + CHUNK - 1, #named) do
      local raw = string.sub(named[i], 2)
      command[#command + 1] = raw
      names[raw] = named[i]
    end
    command[#command + 1] = 'JUSTID'
    local reply = redis.pcall(unpack(command))
    if not reply.err then
      for _, raw in ipairs(reply) do mine[names[raw]] = true end
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
  local lost, revoked, mine = {}, {}, {}
  for stream, named in pairs(held) do renew(stream, consumer, named, mine) end
  for i = 4, #args, 2 do
    if not mine[args[i]] then lost[#lost + 1] = args[i] end
  end
  if exists(base .. ':revoking') then
    for i, id in ipairs(ids) do
      local entry = args[2 + 2 * i]
      if mine[entry] and redis.call('SISMEMBER', base .. ':revoking', id) == 1 then revoked[#revoked + 1] = entry end
    end
  end
  return {lost, revoked}
end, {'allow-oom'})
