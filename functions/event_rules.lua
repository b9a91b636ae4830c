-- event_rules: which events a queue writes, what they contain, and how many the queue keeps.
--   setEvents  channel number { name value }* -> "ok"     value '' removes a rule
--     names: max_events         the number of events that the queue keeps, 1 to MOST
--            events_off         the kinds that it does not write, joined by spaces; "all": every kind
--            progress_interval  the least time between two `progress` events of a job, ms
--            event_content      "size" or "value", see event_content.lua
--            by                 the author, see settings.lua
--   event_rules  hash  off, interval, content: the rules of a queue that has any of them
--   meta2        hash  max_events
-- `obliterated` is always written: readers learn from it that the numbers of the events begin again.
-- A call reads the rules only if the queue has the flag of `event_rules`.

local event_rules = {}
event_rules.MOST = 100000
local ALL = 'all'
local ALWAYS = 'obliterated'
local FIELDS = {events_off = 'off', progress_interval = 'interval', event_content = 'content'}
local CONTENTS = {size = true, value = true}
local LONGEST_MS = 86400000

-- The set of kinds of the last `off`. Calls of one queue often follow each other.
local last_text, last_set

-- Return the set of the kinds in a text, ALL for every kind.
local function kinds_in(text)
  if text == ALL then return ALL end
  if text ~= last_text then
    local found = {}
    for kind in string.gmatch(text, '%S+') do found[kind] = true end
    last_text, last_set = text, found
  end
  return last_set
end

local function read(base)
  local kept = redis.call('HMGET', base .. ':event_rules', 'off', 'interval', 'content')
  return {off = kept[1] and kinds_in(kept[1]), interval = tonumber(kept[2] or nil), content = kept[3] or nil}
end

-- Return the rules { off, interval, content } of a queue, nil if it has none. seen: the table of queue_flags.at.
function event_rules.of(base, seen)
  if not seen.event_rules then return nil end
  local rules = seen.rules
  if not rules then
    rules = read(base)
    seen.rules = rules
  end
  return rules
end

-- Return the part of queue_flags.at that events need, for a call that has not read the flags.
function event_rules.seen(base)
  return {event_rules = queue_flags.has_event_rules(redis.call('HGET', base .. ':meta2', 'features'))}
end

-- Return true if the queue writes events of this kind.
function event_rules.is_on(rules, kind)
  return not rules or rules.off ~= ALL and not (rules.off and rules.off[kind])
end

-- Remove the events that the queue does not write.
function event_rules.sift(rules, lines)
  if rules.off == ALL then
    for kind in pairs(lines) do
      if kind ~= ALWAYS then lines[kind] = nil end
    end
  elseif rules.off then
    for kind in pairs(rules.off) do lines[kind] = nil end
  end
end

-- Return true if a `progress` event of a job may be written now. progress_at: the time of its last one (ms, as text).
function event_rules.is_due(rules, progress_at, now)
  local last = rules.interval and tonumber(progress_at or nil)
  return not last or clock.is_ahead(last, now) or now - last >= rules.interval
end

local check = {}

function check.max_events(value)
  local most = integer('max_events', value)
  if most < 1 or most > event_rules.MOST then fail('ARGUMENT', 'max_events must be 1 to ' .. event_rules.MOST) end
end

function check.events_off(value)
  if not string.find(value, '^%l[%l -]*$') then fail('ARGUMENT', 'events_off cannot be ' .. value) end
  if kinds_in(value)[ALWAYS] then fail('ARGUMENT', 'the event ' .. ALWAYS .. ' cannot be switched off') end
end

function check.progress_interval(value)
  local length = integer('progress_interval', value)
  if length < 1 or length > LONGEST_MS then
    fail('ARGUMENT', 'progress_interval must be 1 to ' .. LONGEST_MS .. ' ms')
  end
end

function check.event_content(value)
  if not CONTENTS[value] then fail('ARGUMENT', 'event_content cannot be ' .. value) end
end

-- Return the named rules { name value }…, and the author. Raises an error if a name or a value is wrong.
local function parse(args)
  local named, by = {}, nil
  for i = 3, #args, 2 do
    local name, value = args[i], args[i + 1]
    if name == 'by' then
      by = settings.author(value)
    elseif not check[name] then
      fail('ARGUMENT', 'unknown rule of events ' .. name)
    else
      if value ~= '' then check[name](value) end
      named[#named + 1] = {name, value}
    end
  end
  return named, by
end

-- Store the value of a rule that applies now, '' for none.
local function store(base, name, value)
  if name == 'max_events' then
    if value == '' then
      redis.call('HDEL', base .. ':meta2', name)
    else
      redis.call('HSET', base .. ':meta2', name, value)
    end
  elseif value == '' then
    redis.call('HDEL', base .. ':event_rules', FIELDS[name])
  else
    redis.call('HSET', queue_flags.create(base, 'event_rules'), FIELDS[name], value)
  end
end

request.register('setEvents', function(base, args)
  local named, by = parse(args)
  queue_flags.require(base)
  local now = clock.now()
  for _, pair in ipairs(named) do
    local value = settings.change(base, pair[1], pair[2], by, now)
    if value then store(base, pair[1], value) end
  end
  return 'ok'
end, {'allow-oom'})
