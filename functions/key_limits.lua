-- key_limits: sets and reads the limits of the queue and of its keys. Only these calls change limits; an add never
-- does.
--   setLimits     channel number { name value }*  -> "ok"         of the queue; value '' removes a limit
--                 names: concurrency, rate ("<max> <ms>")
--   getLimits     -> { concurrency | '', rate_max | '', rate_ms | '', gate | '' }
--   setKeyLimits  channel number key { name value }* -> "ok"      key '' = the default of all keys; value '' removes
--                 names: concurrency, rate ("<max> <ms>"), bucket ("<capacity> <refill a second>", thousandths)
--   getKeyLimits  key -> { concurrency | '', rate_max, rate_ms, capacity, refill, paused_until } without the defaults
--   pauseKey      channel number key ms -> "ok"                   0 ends a pause
--   reviewKeys    channel number cursor -> next cursor | ''       after the default limits of keys have changed
-- A change applies immediately: the affected keys are reviewed, and workers wake up if more jobs may start now.

local STEP = 50
local FIELDS = {concurrency = {'concurrency'}, rate = {'rate_max', 'rate_ms'}, bucket = {'capacity', 'refill'}}

-- Return the fields to write for the named limits. Raises an error if a name or a value is wrong.
local function parse(args, from)
  local writes = {}
  for i = from, #args, 2 do
    local fields, value = FIELDS[args[i]], args[i + 1]
    if not fields then fail('ARGUMENT', 'unknown limit ' .. args[i]) end
    local numbers = {}
    for number in string.gmatch(value, '%d+') do numbers[#numbers + 1] = number end
    if value ~= '' and #numbers ~= #fields then fail('ARGUMENT', 'the limit ' .. args[i] .. ' cannot be ' .. value) end
    for j, field in ipairs(fields) do writes[#writes + 1] = {field, numbers[j]} end
  end
  return writes
end

-- Write these fields of the limits into a hash.
local function set(key, writes)
  for _, write in ipairs(writes) do
    if write[2] then redis.call('HSET', key, write[1], write[2]) else redis.call('HDEL', key, write[1]) end
  end
end

local function all_of(key, fields)
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 1, #fields do values[i] = values[i] or '' end
  return values
end

request.register('setLimits', function(base, args)
  local writes, call = parse(args, 3), queue_flags.call(base)
  set(queue_flags.create(base, 'limits', call.seen), writes)
  local length = redis.call('HGET', base .. ':limits', 'rate_ms')
  if length then limits.keep_starts(base .. ':rate', tonumber(length)) else redis.call('UNLINK', base .. ':rate') end
  limits.note_use(base)
  call.seen.limits = exists(base .. ':limits')
  call.startable = locations.ready_count(base)
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})

register('getLimits', function(base)
  return all_of(base .. ':limits', {'concurrency', 'rate_max', 'rate_ms', 'gate'})
end, {'no-writes'})

-- Keep the known starts and tokens of a key for as long as its new limits need them.
local function keep_known(base, key, call)
  local limits_now = keyed.limits_of(base, key, call)
  limits.keep_starts(base .. ':keyrate:' .. key, limits_now.length)
  limits.keep_tokens(base .. ':keybucket:' .. key, limits_now.bucket, call.now)
end

request.register('setKeyLimits', function(base, args)
  local key, writes, call = args[3], parse(args, 4), queue_flags.call(base)
  set(base .. ':key:' .. key, writes)
  if exists(base .. ':key:' .. key) then
    redis.call('SADD', base .. ':limited', key)
    redis.call('HSET', base .. ':meta2', 'key_limits', '1')
  else
    redis.call('SREM', base .. ':limited', key)
  end
  call.seen.limited = redis.call('HGET', base .. ':meta2', 'key_limits') == '1'
  if key ~= '' then keep_known(base, key, call) end
  if key ~= '' then keyed.touch(call, key) end
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})

register('getKeyLimits', function(base, args)
  local values = all_of(base .. ':key:' .. args[1], {'concurrency', 'rate_max', 'rate_ms', 'capacity', 'refill'})
  local ends = redis.call('ZSCORE', base .. ':pauses', args[1])
  values[6] = ends and tonumber(ends) > clock.now() and ends or ''
  return values
end, {'no-writes'})

request.register('pauseKey', function(base, args)
  local key, length = args[3], integer('ms', args[4])
  local call = queue_flags.call(base)
  redis.call('ZREM', base .. ':pauses', key)
  if length > 0 then keyed.pause(base, key, call.now + length, call) end
  keyed.touch(call, key)
  events.note(call.lines, length > 0 and 'key-paused' or 'key-resumed', key, digits(length))
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})

-- Review every key with a waiting job, one step of the waiting jobs per call. Jobs that arrive later use the new limits
-- anyway.
request.register('reviewKeys', function(base, args)
  local call = queue_flags.call(base)
  local step = redis.call('ZRANGEBYSCORE', base .. ':keyed', '(' .. digits(integer('cursor', args[3])), '+inf',
    'WITHSCORES', 'LIMIT', 0, STEP)
  for i = 1, #step, 2 do
    local route = keyed.route_of(base, step[i])
    if route then keyed.touch(call, route.key) end
    if route then keep_known(base, route.key, call) end
  end
  wakeup.finish(base, call)
  return #step == 2 * STEP and digits(tonumber(step[#step])) or ''
end, {'allow-oom'})
