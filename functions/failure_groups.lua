-- failure_groups: failed attempts of a queue, grouped by error and place. A group has its number of failures, when it
-- began and was last seen, its last 24 hours, the versions of its workers, and a sample.
--   listFailureGroups  cursor -> { next cursor | '', { { fingerprint, group }… }, now ms }     the group that failed
--                      last comes first
--   store:
--     failing         zset  fingerprint -> when the group failed last, ms; at most MOST_GROUPS, the oldest one leaves
--     failure_groups  hash  fingerprint -> msgpack of the group, a list of the values named below
-- An attempt that fails is noted in the call that settles it. The worker sends the fingerprint and the place with the
-- error: [type, message, traceback, place, fingerprint, version]. The last three may be missing. A failure that the
-- server finds (an expired lease, an expired job) forms a group by its cause and the name of the job. A revoked job has
-- not failed.
-- The notes of a call are collected, and written as one change for each group. Only failures cost anything.

local failure_groups = {}
local MOST_GROUPS = 200
local MOST_NOTES = 16            -- groups that a call collects before it writes them
local MOST_VERSIONS = 8
local HOURS, HOUR_MS = 24, 3600000
local LONGEST, LONGEST_MESSAGE = 200, 500
local STEP = 50
local SHORTEST_LIST, LONGEST_LIST = 147, 159     -- the first byte of a list of 3 to 15 values in msgpack
-- The positions of the values of a group. TREND: the failures of each of the last 24 hours, HOUR is the last one.
-- VERSIONS: flat { version count }*, the version that was seen last comes last.
local COUNT, FIRST, LAST, HOUR, TREND, NAME, TYPE, PLACE, MESSAGE, SAMPLE, BEGAN, VERSIONS = 1, 2, 3, 4, 5, 6, 7, 8, 9,
  10, 11, 12

local function cut(text, most)
  return #text > most and string.sub(text, 1, most) or text
end

-- Return the version of a worker, '' if it has none or is unknown. It is read once in a call.
function failure_groups.version_of(base, consumer, call)
  if not consumer or consumer == '' then return '' end
  local versions = call.versions or {}
  call.versions = versions
  if not versions[consumer] then
    local info = redis.call('HGET', base .. ':workers', consumer)
    local readable, described = pcall(cmsgpack.unpack, info or '')
    local version = readable and type(described) == 'table' and described.version
    versions[consumer] = type(version) == 'string' and version or ''
  end
  return versions[consumer]
end

-- Return the worker that makes this call and its version, "<worker> <version>".
function failure_groups.runner_of(base, call)
  call.runner = call.runner or call.consumer .. ' ' .. failure_groups.version_of(base, call.consumer, call)
  return call.runner
end

-- Return an empty group.
local function begin(noted, now)
  local trend = {}
  for i = 1, HOURS do trend[i] = 0 end
  return {0, now, now, math.floor(now / HOUR_MS), trend, '', '', '', '', '', noted.version, {}}
end

-- Return a stored group, nil if there is none or it was damaged by hand.
local function stored(base, fingerprint)
  local packed = redis.call('HGET', base .. ':failure_groups', fingerprint)
  local readable, group = pcall(cmsgpack.unpack, packed or '')
  if readable and type(group) == 'table' and type(group[TREND]) == 'table' and type(group[VERSIONS]) == 'table' then
    return group
  end
end

-- Shift the trend of a group to the present hour. While the clock is behind the last known hour, failures count in that
-- hour.
local function move_on(group, now)
  local hour, trend = math.floor(now / HOUR_MS), group[TREND]
  local by = math.min(hour - group[HOUR], HOURS)
  if by <= 0 then return end
  for i = 1, HOURS do trend[i] = trend[i + by] or 0 end
  group[HOUR] = hour
end

local function count_version(versions, version, n)
  for i = 1, #versions, 2 do
    if versions[i] == version then
      n = n + table.remove(versions, i + 1)
      table.remove(versions, i)
      break
    end
  end
  versions[#versions + 1], versions[#versions + 2] = version, n
  if #versions > 2 * MOST_VERSIONS then
    table.remove(versions, 1)
    table.remove(versions, 1)
  end
end

-- Forget the groups that were seen longest ago.
local function forget_some(base)
  local over = redis.call('ZCARD', base .. ':failing') - MOST_GROUPS
  if over <= 0 then return end
  local popped, gone = redis.call('ZPOPMIN', base .. ':failing', digits(over)), {}
  for i = 1, #popped, 2 do gone[#gone + 1] = popped[i] end
  redis.call('HDEL', base .. ':failure_groups', unpack(gone))
end

local function write_group(base, fingerprint, noted, now)
  local group = stored(base, fingerprint) or begin(noted, now)
  move_on(group, now)
  group[COUNT], group[LAST] = group[COUNT] + noted.count, math.max(group[LAST], now)
  group[TREND][HOURS] = group[TREND][HOURS] + noted.count
  group[NAME], group[TYPE], group[PLACE] = noted.name, noted.type, noted.place
  group[MESSAGE], group[SAMPLE] = noted.message, noted.id
  count_version(group[VERSIONS], noted.version, noted.count)
  redis.call('HSET', base .. ':failure_groups', fingerprint, cmsgpack.pack(group))
  if redis.call('ZADD', base .. ':failing', digits(group[LAST]), fingerprint) == 1 then forget_some(base) end
end

-- Write the groups that this call has noted.
function failure_groups.write(base, call)
  for key, noted in pairs(call.failures) do write_group(base, noted.fingerprint, noted, call.now) end
  call.failures, call.failure_count = nil, nil
end

-- Count one more failure of a group that this call has noted before. Return false if it has not. The first failure of a
-- group in a call is its sample.
local function is_counted(fingerprint, version, call)
  local noted = call.failures and call.failures[fingerprint .. ' ' .. version]
  if noted then noted.count = noted.count + 1 end
  return noted
end

-- Note the first failure of a group in this call.
local function note(base, fingerprint, id, failed, call)
  local failures = call.failures or {}
  failed.fingerprint, failed.id, failed.count = fingerprint, id, 1
  call.failures, failures[fingerprint .. ' ' .. failed.version] = failures, failed
  call.failure_count = (call.failure_count or 0) + 1
  if call.failure_count >= MOST_NOTES then failure_groups.write(base, call) end
end

local function text_at(list, i)
  return type(list[i]) == 'string' and list[i] or ''
end

-- Return the list in an error, {} if it is something else: cmsgpack would return each byte of a text as a value.
local function parts_of(payload)
  local first = string.byte(payload)
  if not first or first < SHORTEST_LIST or first > LONGEST_LIST then return {} end
  local readable, found = pcall(cmsgpack.unpack, payload)
  return readable and type(found) == 'table' and found or {}
end

-- Note an attempt that has failed. name: the name of the job; payload: the error as the worker sent it; reason: the
-- text of the error. Return the fingerprint and the version of the worker.
function failure_groups.attempt(base, id, name, payload, reason, call)
  local parts = parts_of(payload)
  local kind = text_at(parts, 1)
  if kind == '' then kind = string.match(reason, '^[^:]*') end
  local fingerprint, version = cut(text_at(parts, 5), 64), cut(text_at(parts, 6), 64)
  if not string.find(fingerprint, '^%w+$') then
    fingerprint = string.sub(redis.sha1hex(name .. SEP .. kind), 1, 16)
  end
  if version == '' then version = failure_groups.version_of(base, call.consumer, call) end
  if is_counted(fingerprint, version, call) then return fingerprint, version end
  note(base, fingerprint, id, {name = cut(name, LONGEST), type = cut(kind, LONGEST), place = cut(text_at(parts, 4),
    LONGEST), message = cut(text_at(parts, 2), LONGEST_MESSAGE), version = version}, call)
  return fingerprint, version
end

-- Note a failure that the server has found. consumer: the worker of the run, nil without one. Return the fingerprint.
function failure_groups.found(base, id, cause, reason, consumer, call)
  local name = redis.call('HGET', base .. ':job:' .. id, 'name') or '?'
  local fingerprint = string.sub(redis.sha1hex(name .. SEP .. SEP .. cause), 1, 16)
  local version = failure_groups.version_of(base, consumer, call)
  if is_counted(fingerprint, version, call) then return fingerprint end
  note(base, fingerprint, id, {name = cut(name, LONGEST), type = cause, place = '', message = cut(reason,
    LONGEST_MESSAGE), version = version}, call)
  return fingerprint
end

-- Return why the entry of a fingerprint in `failing` is faulty, nil if it is sound.
function failure_groups.fault_of(base, fingerprint)
  if not stored(base, fingerprint) then return 'in failing without its group' end
end

register('listFailureGroups', function(base, args)
  local from = args[1] == '' and 0 or integer('cursor', args[1])
  local found = redis.call('ZREVRANGE', base .. ':failing', digits(from), digits(from + STEP - 1))
  local rows, packed = {}, found[1] and redis.call('HMGET', base .. ':failure_groups', unpack(found))
  for i, fingerprint in ipairs(found) do
    if packed[i] then rows[#rows + 1] = {fingerprint, packed[i]} end
  end
  return {#found == STEP and digits(from + STEP) or '', rows, (clock.now())}
end, {'no-writes'})
