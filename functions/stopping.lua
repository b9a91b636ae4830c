-- stopping: runs whose job was removed while it ran, and whose handler may still execute.
--   stopping       zset  token -> instant at which its lease ends, ms
--   stopping_runs  hash  token -> consumer, lease in ms and ordering key ('' without one), separated by SEP
-- Removing a job takes effect immediately: its record and its run are gone, and no reader sees it any more.
-- Its handler needs time to stop, and a thread cannot be stopped at all. If the removal also freed the run's ordering
-- key, the next job of the key would start while the handler still executes. So a stopping run still counts as running
-- for its key and for the queue's concurrency limit until one of these happens:
-- - Its worker reports the end of the run, by endRuns (see lease.lua) or by an outcome, which is refused (settle.lua).
-- - Its lease expires. The worker renews it together with its other leases.
-- A job without a key in a queue without a concurrency limit holds nothing back, so its run is not stored here.

local stopping = {}

-- Return true if a run under this token holds back other jobs.
function stopping.is_limited(base, entry, call)
  if string.sub(entry, 1, 1) == 'k' then return true end
  return call.seen.limits and redis.call('HGET', base .. ':limits', 'concurrency') and true or false
end

-- Keep the key and the slot of a run. row: see runs.lua. The caller ends the run and deletes the record. Return false
-- if the lease is not known: then the caller releases the key.
function stopping.keep(base, id, entry, row, call)
  local lock = string.match(redis.call('HGET', base .. ':job:' .. id, 'claim') or '', '^%d+ %d+ (%d+)')
  if not lock then return false end
  redis.call('ZADD', base .. ':stopping', digits(call.now - row[3] + lock), entry)
  redis.call('HSET', base .. ':stopping_runs', entry, row[2] .. SEP .. lock .. SEP .. (row[6] or ''))
  return true
end

-- Return consumer, lease and key of the stopping run of this entry, or nil.
local function find(base, entry)
  local run = redis.call('HGET', base .. ':stopping_runs', entry)
  if not run then return nil end
  local consumer, lock, key = string.match(run, '^(.-)' .. SEP .. '(%d+)' .. SEP .. '(.*)$')
  return consumer, tonumber(lock), key
end

local function forget(base, entry, key, call)
  redis.call('ZREM', base .. ':stopping', entry)
  redis.call('HDEL', base .. ':stopping_runs', entry)
  if key ~= '' then keyed.release(base, {key}, call) end
  limits.freed(1, call)
end

-- Note that the runs of this consumer under these entries have ended. Return how many of them were stopping. The
-- consumer is compared, because a failover that lost a claim can give the same entry to two workers.
function stopping.finish(base, consumer, ended, call)
  local count = 0
  for _, entry in ipairs(ended) do
    local holder, _, key = find(base, entry)
    if holder and holder == consumer then
      forget(base, entry, key, call)
      count = count + 1
    end
  end
  return count
end

-- Renew the leases of the stopping runs among these entries.
function stopping.renew(base, consumer, named, now)
  if not exists(base .. ':stopping') then return end
  for _, entry in ipairs(named) do
    local holder, lock = find(base, entry)
    if holder and holder == consumer then redis.call('ZADD', base .. ':stopping', digits(now + lock), entry) end
  end
end

-- End up to `most` stopping runs whose lease has expired. counted(idle): the part of the time since a renewal that
-- counts. Return the number of ended ones.
function stopping.expire(base, counted, most, call)
  local key, count = base .. ':stopping', 0
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', call.now, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #due, 2 do
    local _, lock, ordering_key = find(base, due[i])
    if not lock or counted(call.now - due[i + 1] + lock) >= lock then
      forget(base, due[i], ordering_key or '', call)
      count = count + 1
    end
  end
  return count
end

-- Return the number of stopping runs of each key; nil if there are too many to read.
function stopping.by_key(base)
  if redis.call('HLEN', base .. ':stopping_runs') > 1000 then return nil end
  local flat, keys = redis.call('HGETALL', base .. ':stopping_runs'), {}
  for i = 2, #flat, 2 do
    local key = string.match(flat[i], SEP .. '%d+' .. SEP .. '(.+)$')
    if key then keys[key] = (keys[key] or 0) + 1 end
  end
  return keys
end

-- Compare the stored counts of running jobs with the runs of these keys. Return each key as often as its count must be
-- lowered. held: the keys whose counts the caller lowers already. In a queue with too many runs to read, return no key.
-- The count of a key may then stay too high, and a check reports that.
function runs.uncounted(base, keys, held)
  local actual, found, most = stopping.by_key(base), {}, 1000
  if not actual or redis.call('ZCARD', base .. ':runs') > most then return found end
  local function add(list)
    for i = 1, #list do
      local key = list[i]
      if key then actual[key] = (actual[key] or 0) + 1 end
    end
  end
  add((select(2, runs.jobs_from(base, '0', '-1'))))
  add(held)
  for _, key in ipairs(keys) do
    if tonumber(redis.call('HGET', base .. ':running', key) or 0) > (actual[key] or 0) then
      found[#found + 1] = key
      add({key})
    end
  end
  return found
end
