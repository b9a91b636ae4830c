-- settings: who has set the limits, the retention and the pauses of a queue. An operator's setting applies instead of
-- the value that the code declares, until it is released.
--   getSettings  -> { paused | '', now, flat limits of the queue, flat settings, version of the limits of the queue,
--                     flat rules of events, max_events | '' }
--   settings  hash  "o<name>"  cmsgpack { value, who, ms, note } of an operator's setting, a hold
--                   "c<name>"  cmsgpack { value, who, ms } that the code has declared
--     names: paused; concurrency, rate, max_waiting; keep_completed, keep_failed; max_events, events_off,
--     progress_interval, event_content; for keys "<limit> <key>", the empty key for the default; and "schedule <id>":
--     held while a scheduler is paused, and declared with its schedule as a text
-- A call that changes a setting may name its author, `by`: cmsgpack { origin, who, note }.
--   origin  "operator": the value holds from now on
--           "code": the value is declared, and applies unless there is a hold; '' removes a declaration, and changes
--             nothing if there is none
--           "release": the hold ends, and the declared value applies, or no limit
-- A change without an author is an operator's if the code has declared a value. Otherwise it leaves no trace.

local settings = {}

-- Return the author in an argument, nil for ''.
function settings.author(packed)
  if not packed or packed == '' then return nil end
  local readable, by = pcall(cmsgpack.unpack, packed)
  if not readable or type(by) ~= 'table' or not (by[1] and by[2]) then
    fail('ARGUMENT', 'the author of a change is not readable')
  end
  return {origin = by[1], who = by[2], note = by[3] or ''}
end

local function declared(base, name)
  local kept = redis.call('HGET', base .. ':settings', 'c' .. name)
  local readable, found = pcall(cmsgpack.unpack, kept or '')
  return readable and type(found) == 'table' and found[1] or nil
end

local function hold(base, name, value, who, note, now)
  redis.call('HSET', base .. ':settings', 'o' .. name, cmsgpack.pack({value, who, now, note}))
end

-- Note a change of a setting. Return the value that applies now, nil if the change must not apply.
function settings.change(base, name, value, by, now)
  local key = base .. ':settings'
  if not by then
    if declared(base, name) then
      hold(base, name, value, 'python', '', now)
    else
      redis.call('HDEL', key, 'o' .. name)
    end
    return value
  end
  if by.origin == 'operator' then
    hold(base, name, value, by.who, by.note, now)
    return value
  end
  if by.origin == 'release' then
    redis.call('HDEL', key, 'o' .. name)
    return declared(base, name) or ''
  end
  if value == '' then
    -- The code removes only a limit that it has declared.
    if redis.call('HDEL', key, 'c' .. name) == 0 then return nil end
  else
    redis.call('HSET', key, 'c' .. name, cmsgpack.pack({value, by.who, now}))
  end
  return redis.call('HEXISTS', key, 'o' .. name) == 0 and value or nil
end

-- Note a setting that only operators set, or its end. name: paused, keep_<state> or "schedule <id>"; value: '' when it
-- ends.
function settings.note_hold(base, name, value, by, now)
  if value == '' then
    redis.call('HDEL', base .. ':settings', 'o' .. name)
  else
    hold(base, name, value, by and by.who or '', by and by.note or '', now)
  end
end

-- Note the schedule that the code declares for a scheduler. text: nil if the code does not declare the scheduler. The
-- author of an unchanged schedule stays, so that it names the first version with this schedule.
function settings.declare_schedule(base, id, text, by, now)
  local key, field = base .. ':settings', 'cschedule ' .. id
  if not text then
    redis.call('HDEL', key, field)
  elseif declared(base, 'schedule ' .. id) ~= text then
    redis.call('HSET', key, field, cmsgpack.pack({text, by.who, now}))
  end
end

-- Return who has paused the queue, when and with which note.
function settings.pause_of(base)
  local readable, found = pcall(cmsgpack.unpack, redis.call('HGET', base .. ':settings', 'opaused') or '')
  if readable and type(found) == 'table' then return found[2], found[3], found[4] end
end

-- Return the version of the limits of the queue: another text after each change of a limit, of its author, or of a
-- declared value. A client that has read this version can make its change depend on it.
function settings.version(base)
  local parts = {}
  local function add(key, ...)
    for _, value in ipairs(redis.call('HMGET', key, ...)) do
      value = value or ''
      parts[#parts + 1] = digits(#value) .. SEP .. value
    end
  end
  add(base .. ':limits', 'concurrency', 'rate_max', 'rate_ms', 'max_waiting')
  add(base .. ':settings', 'oconcurrency', 'orate', 'omax_waiting', 'cconcurrency', 'crate', 'cmax_waiting')
  return redis.sha1hex(table.concat(parts))
end

register('getSettings', function(base)
  local meta = redis.call('HMGET', base .. ':meta2', 'paused', 'max_events')
  local set, kept = redis.call('HGETALL', base .. ':limits'), redis.call('HGETALL', base .. ':settings')
  return {meta[1] or '', clock.now(), set, kept, settings.version(base),
    redis.call('HGETALL', base .. ':event_rules'), meta[2] or ''}
end, {'no-writes'})
