-- events: the history of a queue as a capped stream. Readers can resume, and can count the events that they missed.
--   events  stream  one entry per call: seq (number of its first event), n (number of events), t (ms), e (the events),
--     and c, see event_content.lua. An entry of `progress` also has name and key of its job, and v, the progress as a
--     payload.
--     e: one line per kind, in the order of KINDS: kind SEP id SEP id …
--        kinds with a detail: kind SEP id SEP detail SEP …; the detail of `added` is the name, or name RS key
--   meta2   hash    events: the number of events ever written
-- Ids and details contain no control characters. Old events are trimmed from the head only, by number and by size, and
-- never with XDEL: otherwise readers could not count what they missed. `positions` (history.lua) keeps the readers that
-- hold back the trimming.

local events = {}
local MAX_BYTES = 16 * 1024 * 1024
local CHECK_EVENTS = 1024          -- number of events between two checks of the caps
local LARGE = 65536                -- bytes of the events of an entry that causes a check too
local BYTES_OF_ENTRY = 512         -- more than an entry takes besides twice the bytes of its events
local MOST_SIZES = 10000           -- the table of sizes starts anew with more queues
local MOST_TRIMMED = 20000         -- number of entries that one check removes, in a queue with the rule max_events
local HELD = 4                     -- a reader that holds events keeps at most this multiple of the caps
local FORGET_MS = 604800000        -- a reader that was silent for a week holds nothing any more

-- The catalogue of kinds. true: the kind has a detail. A kind comes after the kinds that always precede it for a job.
local DETAIL = {added = true, failed = true, ['dead-lettered'] = true, retrying = true, stalled = true, waiting = true,
  removed = true, dropped = true, limited = true, changed = true, duplicate = true, ['key-paused'] = true,
  ['key-resumed'] = true, drained = true, cleaned = true, obliterated = true, skipped = true,
  written = true, signalled = true, lost = true}
local KINDS = {'paused', 'resumed', 'key-paused', 'key-resumed', 'skipped', 'added', 'duplicate', 'waiting-children',
  'delayed', 'suspended', 'signalled', 'stalled', 'waiting', 'completed', 'failed', 'dead-lettered', 'retrying',
  'returned', 'limited', 'revoking', 'changed', 'active', 'progress', 'updated', 'removed', 'dropped', 'drained',
  'cleaned', 'written', 'lost', 'obliterated'}

-- Return the list of a kind: its name, then the events. `lines` collects the events of one call by kind. A caller that
-- notes many events without a detail appends their ids itself, at least one.
function events.line(lines, kind)
  local line = lines[kind]
  if not line then
    line = {kind}
    lines[kind] = line
  end
  return line
end

-- Note one event.
function events.note(lines, kind, id, detail)
  local line = events.line(lines, kind)
  local n = #line
  line[n + 1] = id
  if DETAIL[kind] then line[n + 2] = detail or '' end
end

-- Return the ids of the noted events.
function events.ids_in(lines)
  local ids = {}
  for kind, line in pairs(lines) do
    for i = 2, #line, DETAIL[kind] and 2 or 1 do ids[#ids + 1] = line[i] end
  end
  return ids
end

-- Return the first entry at or after this id, and the number of its first event. Return nil after the last entry.
function events.first_from(key, id)
  local found = redis.call('XRANGE', key, id, '+', 'COUNT', 1)[1]
  if found then return found[1], tonumber(found[2][2]) end
end

do
  -- Search the entry of the event `seq` by one part of the ids: the milliseconds, or the number within a millisecond.
  -- Return the highest value of the part from which on the first entry does not begin after `seq`. id_of: returns the
  -- lowest id of a value; part: returns the value in an id.
  local function highest(key, low, high, id_of, part, seq)
    while low < high do
      local middle = math.ceil((low + high) / 2)
      local entry, number = events.first_from(key, id_of(middle))
      local found = entry and number <= seq and part(entry)
      if found and found <= high then low = math.max(found, middle) else high = middle - 1 end
    end
    return low
  end

  local function ms_of(entry) return tonumber(string.match(entry, '^%d+')) end
  local function number_of(entry) return tonumber(string.match(entry, '%d+$')) end

  -- Return the entry that contains the event of this number, and the number of its first event. If that entry was
  -- trimmed, return the oldest entry; if the event was not written yet, nil. Looks at a few dozen entries at most.
  function events.entry_of(key, seq)
    local first, number = events.first_from(key, '-')
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    if not first or seq >= last[2][2] + last[2][4] then return nil end
    if seq < number then return first, number end
    local ms = highest(key, ms_of(first), ms_of(last[1]), digits, ms_of, seq)
    local text = digits(ms)
    local from = number_of(events.first_from(key, text .. '-0'))
    local newest = number_of(redis.call('XREVRANGE', key, text, '-', 'COUNT', 1)[1][1])
    local function id_of(n) return text .. '-' .. digits(n) end
    -- An entry of a later millisecond does not count.
    local function within(entry) return ms_of(entry) == ms and number_of(entry) or nil end
    return events.first_from(key, id_of(highest(key, from, newest, id_of, within, seq)))
  end
end

-- Return the number of the first event that a reader holds, nil if no reader holds any. Readers that were silent for a
-- week are forgotten.
local function first_held(base, now)
  local first, gone, key = nil, {}, base .. ':positions'
  local flat = redis.call('HGETALL', key)
  for i = 2, #flat, 2 do
    local n, ms, hold = string.match(flat[i], '^[^' .. SEP .. ']*' .. SEP .. '(%d+)' .. SEP .. '(%d+)' .. SEP .. '(.?)')
    if not ms or now - ms > FORGET_MS then
      gone[#gone + 1] = flat[i - 1]
    elseif hold == '1' then
      first = math.min(first or math.huge, tonumber(n))
    end
  end
  if gone[1] then in_chunks('HDEL', key, nil, gone) end
  return first
end

-- The server walks through all nodes of a stream to measure it, which takes as long as the rest of some calls. So this
-- server remembers the last size of each stream, and adds what it has written since. The sum is an upper bound. If
-- another server or events.progress has written since, the number of events differs, and the size is unknown.
local sizes, n_sizes = {}, 0       -- base -> { number of events ever written, upper bound of the bytes }

local function note_written(base, total, n, bytes)
  local size = sizes[base]
  if not size then return end
  if size[1] ~= total - n then
    size[1] = -1
    return
  end
  size[1], size[2] = total, size[2] + BYTES_OF_ENTRY + 2 * bytes
end

-- Return the bytes of a stream, or an upper bound that is within MAX_BYTES.
local function bytes_of(base, key, total)
  local size = sizes[base]
  if size and size[1] == total and size[2] <= MAX_BYTES then return size[2] end
  -- Sample all nodes: entries differ in size, and the oldest few say nothing about the others.
  local bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
  if not size then
    if n_sizes == MOST_SIZES then sizes, n_sizes = {}, 0 end
    size, n_sizes = {}, n_sizes + 1
    sizes[base] = size
  end
  size[1], size[2] = total, bytes
  return bytes
end

local function trim(base, key, total, now)
  local _, oldest = events.first_from(key, '-')
  if not oldest then return end
  local bytes = bytes_of(base, key, total)
  local most = redis.call('HGET', base .. ':meta2', 'max_events')
  local over = math.max((total - oldest) / tonumber(most or event_rules.MOST), bytes / MAX_BYTES)
  if over <= 1 then return end
  local held = first_held(base, now)
  if not held then
    local length = redis.call('XLEN', key)
    local wanted = math.max(1, math.floor(length / over))
    if most then wanted = math.max(wanted, length - MOST_TRIMMED) end
    redis.call('XTRIM', key, 'MAXLEN', wanted)
    return
  end
  local surplus = total - oldest
  local wanted, forced = total - surplus / over, total - surplus / over * HELD
  local entry = events.entry_of(key, math.floor(math.max(math.min(wanted, held), forced)))
  if entry then redis.call('XTRIM', key, 'MINID', entry) end
end

local function joined(lines)
  local kind = next(lines)
  if next(lines, kind) == nil then
    return table.concat(lines[kind], SEP), (#lines[kind] - 1) / (DETAIL[kind] and 2 or 1)
  end
  local texts, n = {}, 0
  for _, kind in ipairs(KINDS) do
    local line = lines[kind]
    if line then
      texts[#texts + 1] = table.concat(line, SEP)
      n = n + (#line - 1) / (DETAIL[kind] and 2 or 1)
    end
  end
  return table.concat(texts, '\n'), n
end

-- Append the events of one call as one entry. call: see queue_flags.call; its `contents`: see event_content.lua.
function events.write(base, call)
  local lines, seen = call.lines, call.seen
  if seen.event_rules then event_rules.sift(event_rules.of(base, seen), lines) end
  if not next(lines) then return end
  local text, n = joined(lines)
  events.append(base, text, n, call)
end

-- Append an entry of n events with this text.
function events.append(base, text, n, call)
  local keys = keys_of(base)
  local key = keys.events
  local total = redis.call('HINCRBY', keys.meta2, 'events', digits(n))
  local t, seq = digits(call.now), digits(total - n)    -- `digits` still has the text of the time
  local bytes = #text
  if call.contents then
    local contents = cmsgpack.pack(call.contents)
    redis.call('XADD', key, '*', 'seq', seq, 'n', digits(n), 't', t, 'e', text, 'c', contents)
    bytes = bytes + #contents
  else
    redis.call('XADD', key, '*', 'seq', seq, 'n', digits(n), 't', t, 'e', text)
  end
  note_written(base, total, n, bytes)
  if total % CHECK_EVENTS < n or #text > LARGE then trim(base, key, total, call.now) end
end

-- Write a single event, for a call that has not read the flags of the queue.
function events.one(base, kind, id, detail, now)
  local call = {lines = {}, now = now, seen = event_rules.seen(base)}
  events.note(call.lines, kind, id, detail)
  events.write(base, call)
end

-- Write the event of a progress. job: { name, key, value }, the value a payload, or nil if it is too large.
function events.progress(base, id, job, now)
  local key = base .. ':events'
  local total = redis.call('HINCRBY', base .. ':meta2', 'events', '1')
  local entry = {'seq', digits(total - 1), 'n', '1', 't', digits(now), 'e', 'progress' .. SEP .. id, 'name', job.name}
  local function put(field, value) entry[#entry + 1], entry[#entry + 2] = field, value end
  if job.key ~= '' then put('key', job.key) end
  if job.value then put('v', job.value) end
  redis.call('XADD', key, '*', unpack(entry))
  if total % CHECK_EVENTS < 1 then trim(base, key, total, now) end
end
