-- key_limits: sets and reads the limits of the queue and of its keys. Only these calls change limits; an add never
-- does.
--   setLimits     channel number { name value }*  -> "ok"         of the queue; value '' removes a limit
--                 names: concurrency, rate ("<max> <ms>"), max_waiting; `by`, see settings.lua; and `version`, which
--                 refuses the call with CHANGED if the limits have another version
--   getLimits     -> { concurrency | '', rate_max | '', rate_ms | '', gate | '', max_waiting | '' }
--   setKeyLimits  channel number key { name value }* -> "ok"      key '' = the default of all keys; value '' removes
--                 names: concurrency, rate ("<max> <ms>"), bucket ("<capacity> <refill a second>", thousandths), `by`
--   getKeyLimits  key -> { concurrency | '', rate_max, rate_ms, capacity, refill, paused_until } without the defaults
--   pauseKey      channel number key ms -> "ok"                   0 ends a pause
--   reviewKeys    channel number cursor -> next cursor | ''       after the default limits of keys have changed
-- A change applies immediately: the affected keys are reviewed, and workers wake up if more jobs may start now.

local STEP = 50
local FIELDS = {concurrency = {'concurrency'}, max_waiting = {'max_waiting'}, rate = {'rate_max', 'rate_ms'},
  bucket = {'capacity', 'refill'}}

local function numbers_in(value)
  local numbers = {}
  for number in string.gmatch(value, '%d+') do numbers[#numbers + 1] = number end
  return numbers
end

-- Return the named limits { name value }…, the author of the change, and the version that the limits must have. Raises
-- an error if a name or a value is wrong.
local function parse(args, from)
  local named, by, version = {}, nil, nil
  for i = from, #args, 2 do
    local name, value = args[i], args[i + 1]
    if name == 'by' then
      by = settings.author(value)
    elseif name == 'version' then
      version = value
    else
      if not FIELDS[name] then fail('ARGUMENT', 'unknown limit ' .. name) end
      if value ~= '' and #numbers_in(value) ~= #FIELDS[name] then
        fail('ARGUMENT', 'the limit ' .. name .. ' cannot be ' .. value)
      end
      named[#named + 1] = {name, value}
    end
  end
  return named, by, version
end

-- Write the fields of named limits into a hash. suffix: what follows the name of a limit in the name of its setting.
local function set(base, key, named, suffix, by, now)
  for _, pair in ipairs(named) do
    local value = settings.change(base, pair[1] .. suffix, pair[2], by, now)
    local numbers = numbers_in(value or '')
    for j, field in ipairs(value and FIELDS[pair[1]] or {}) do
      if numbers[j] then redis.call('HSET', key, field, numbers[j]) else redis.call('HDEL', key, field) end
    end
  end
end

local function all_of(key, fields)
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 1, #fields do values[i] = values[i] or '' end
  return values
end

request.register('setLimits', function(base, args)
  local named, by, version = parse(args, 3)
  if version and version ~= settings.version(base) then
    fail('CHANGED', 'the limits of ' .. base .. ' have another version')
  end
  local call = queue_flags.call(base)
  set(base, queue_flags.create(base, 'limits', call.seen), named, '', by, call.now)
  local length = redis.call('HGET', base .. ':limits', 'rate_ms')
  if length then limits.keep_starts(base .. ':rate', tonumber(length)) else redis.call('UNLINK', base .. ':rate') end
  limits.note_use(base)
  call.seen.limits = exists(base .. ':limits')
  call.startable = locations.ready_count(base)
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})

register('getLimits', function(base)
  return all_of(base .. ':limits', {'concurrency', 'rate_max', 'rate_ms', 'gate', 'max_waiting'})
end, {'no-writes'})

-- Keep the known starts and tokens of a key for as long as its new limits need them.
local function keep_known(base, key, call)
  local limits_now = keyed.limits_of(base, key, call)
  limits.keep_starts(base .. ':keyrate:' .. key, limits_now.length)
  limits.keep_tokens(base .. ':keybucket:' .. key, limits_now.bucket, call.now)
end

request.register('setKeyLimits', function(base, args)
  local key, call, named, by = args[3], nil, parse(args, 4)
  call = queue_flags.call(base)
  set(base, base .. ':key:' .. key, named, ' ' .. key, by, call.now)
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
