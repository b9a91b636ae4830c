-- queue_flags: which features a queue uses, read with one command at the start of a call.
-- Every command inside a function costs a microsecond or more, so a call sends no command for an unused feature. The
-- structure of an unused feature does not exist. Each structure that may exist has a flag in `meta2`, and a call looks
-- only for structures with a flag.
--   meta2  features  one letter for each structure that may exist; absent until the queue is opened
-- A missing flag would hide a structure and its jobs, so every command that may create one of the structures takes its
-- store key from queue_flags.create, which sets the flag in the same call. (tests/unit/test_lua.py verifies that.)
-- openQueue and sweeps compare the flags with the structures, set missing flags, and remove flags without a structure.
--
-- Two versions of this text can serve a queue in turn: an administrator may replace the library by an older one that
-- knows no flags, and by this one again. So this text trusts the flags of a queue only after it has compared them
-- itself (`compared`). Until then it looks for all structures. The same holds after a restart and after a failover.

local queue_flags = {}
-- The first structure has the first letter of ALL, the next one the second. The letters are stored, so append new
-- structures at the end. Neighbours often exist together, which saves steps of the search below.
local STRUCTURES = {'waiters', 'held', 'expiry', 'revoking', 'returned', 'scheduled', 'lifo', 'prioritized', 'ready',
  'sleeping', 'resting', 'pauses', 'limits', 'deduped', 'timer', 'outbox', 'moved',
  'running', 'results', 'recorded', 'started', 'streamed', 'parents', 'flowed', 'flow_work', 'suspended',
  'signalled', 'stepped', 'event_rules', 'compact', 'renewed'}
local ALL = 'abcdefghijklmnopqrstuvwxyz{|}~A'
local names                      -- the structures by the bytes of their letters, made by the first call
queue_flags.MIGRATING = '!'      -- the value of `features` while migrateQueue converts the queue

-- Refuse a call to a queue whose structures have layout 1. Its `features` are absent or MIGRATING, so calls to
-- other queues do not come here.
local function refuse_old(base, features)
  if features or redis.call('TYPE', base .. ':meta').ok == 'hash' then layout.require_migration(base) end
end

-- Return the structure of a flag, nil for an unknown one.
local function structure_at(features, i)
  if not names then
    names = {}
    for k, name in ipairs(STRUCTURES) do names[string.byte(ALL, k)] = name end
  end
  return names[string.byte(features, i)]
end

-- Return the letter of a structure.
local function letter_of(name)
  for i, each in ipairs(STRUCTURES) do
    if each == name then return string.sub(ALL, i, i) end
  end
end

-- Return a pattern that matches the flags of a queue if one of these structures may exist.
function queue_flags.pattern_of(names)
  local letters = {}
  for i, name in ipairs(names) do letters[i] = letter_of(name) end
  return '[' .. table.concat(letters) .. ']'
end

-- Return a pattern that matches the flags of a queue if structures other than these may exist.
function queue_flags.pattern_without(names)
  return '[^' .. string.sub(queue_flags.pattern_of(names), 2)
end

-- Return { <structure> = true } for each flag of a queue.
function queue_flags.flagged_in(features)
  local found = {}
  for i = 1, #features do
    local name = structure_at(features, i)
    if name then found[name] = true end
  end
  return found
end

local EVENT_RULES = '}'          -- the letter of `event_rules`

-- Return true if a queue has rules of events. features: the field of `meta2`. For calls that write events and need no
-- other part of queue_flags.at. If the flag is missing although the queue has rules, these calls also write the events
-- that the rules leave out.
function queue_flags.has_event_rules(features)
  return features and features ~= '' and string.find(features, EVENT_RULES, 1, true) ~= nil
end

local compared, have_new_lines, n_compared = {}, {}, 0
local MOST_COMPARED = 10000      -- the table starts anew with more queues, because the memory of Lua is limited

local last_base, last_letters, last_names, last_keys

-- Return the names and the store keys of flagged structures. Calls of one queue often follow each other, so the last
-- lists are kept.
local function flagged(base, letters)
  if base ~= last_base or letters ~= last_letters then
    local found, keys = {}, {}
    for i = 1, #letters do
      -- `meta2` may have been written by hand, or by a later version with more structures.
      local name = structure_at(letters, i)
      if name then found[#found + 1], keys[#keys + 1] = name, base .. ':' .. name end
    end
    last_base, last_letters, last_names, last_keys = base, letters, found, keys
  end
  return last_names, last_keys
end

-- Note which of keys[from..last] exist. Bisecting needs few commands if few of them do, or nearly all.
local function look(names, keys, from, last, seen)
  if from > last then return end
  local count = redis.call('EXISTS', unpack(keys, from, last))
  if count == 0 then return end
  if count == last - from + 1 then
    for i = from, last do seen[names[i]] = true end
    return
  end
  local middle = math.floor((from + last) / 2)
  look(names, keys, from, middle, seen)
  look(names, keys, middle + 1, last, seen)
end

-- Add <structure> = true to `seen` for each existing structure among the flagged ones.
local function look_up(base, letters, seen)
  local names, keys = flagged(base, letters)
  look(names, keys, 1, #keys, seen)
end

-- Return the end of a pause in ms, true for a pause without an end. value: the field `paused` of a paused queue. A
-- pause whose end has come still counts until a claim ends it, see settle.lua. So other calls need not compare the end
-- with the clock.
function queue_flags.pause_of(value)
  return tonumber(string.match(value, '^1 (%d+)$') or nil) or true
end

-- Return true if a queue is paused now. value: the field `paused`.
function queue_flags.is_paused(value, now)
  local ends = value and value ~= '0' and queue_flags.pause_of(value)
  return ends == true or (ends and ends > now) or false
end

-- Return { paused, touched, turn, dead_letter, incarnation, limited, logs, keep = { completed, failed }, features,
-- shortest_lease, horizon, regrouped, special, own_leases, <structure> = true if it exists }. limited: keys have
-- limits, see keyed.lua. shortest_lease: see stalled.lua. horizon: see results.lua. regrouped, special: see
-- entries.lua. own_leases: see compact_adds.lua.
function queue_flags.at(base)
  local meta = redis.call('HMGET', base .. ':meta2', 'paused', 'keep_completed', 'keep_failed', 'touched',
    'dead_letter', 'turn', 'incarnation', 'key_limits', 'features', 'logs', 'shortest_lease', 'horizon', 'regrouped',
    'special', 'own_leases')
  local features = meta[9]
  if not features or features == queue_flags.MIGRATING then refuse_old(base, features) end
  local seen = {paused = meta[1] and meta[1] ~= '0' and queue_flags.pause_of(meta[1]),
    touched = meta[4] == '1', turn = tonumber(meta[6] or 0),
    dead_letter = meta[5] and meta[5] ~= '' and meta[5] or nil, incarnation = meta[7],
    limited = meta[8] == '1', keep = {completed = meta[2] or '', failed = meta[3] or ''},
    features = features, logs = meta[10] and true, shortest_lease = tonumber(meta[11] or nil),
    horizon = tonumber(meta[12] or nil), regrouped = tonumber(meta[13] or nil),
    special = tonumber(meta[14] or nil), own_leases = meta[15] and true}
  local letters = features and compared[base] and features or ALL
  if letters ~= '' then look_up(base, letters, seen) end
  return seen
end

-- Return true if a queue has the flags of layout 2. features: the field of `meta2`.
function queue_flags.are_known(features)
  return features and features ~= queue_flags.MIGRATING
end

-- Refuse a call to a queue that does not have layout 2 yet. For calls that write without reading the flags.
function queue_flags.require(base)
  local features = redis.call('HGET', base .. ':meta2', 'features')
  if not features or features == queue_flags.MIGRATING then refuse_old(base, features) end
end

-- Return <structure> = true for each of the named structures that exists. features: the field of `meta2`; names: the
-- structures, as a set. For a call that needs no other part of queue_flags.at.
function queue_flags.some(base, features, names)
  local letters, found = features and compared[base] and features or ALL, {}
  for i = 1, #letters do
    local name = structure_at(letters, i)
    if names[name] then found[name] = exists(base .. ':' .. name) end
  end
  return found
end

-- Return <structure> = true for each structure that exists. features: the field of `meta2`. For readers that need no
-- other part of queue_flags.at.
function queue_flags.existing(base, features)
  local letters, seen = features and compared[base] and features or ALL, {}
  if letters ~= '' then look_up(base, letters, seen) end
  return seen
end

-- Return the store key of a structure that the caller may create now, and set its flag. seen: the table of
-- queue_flags.at, or nothing in a call that has not read it. Such a call begins with queue_flags.require, because this
-- function follows writes and must not fail. The caller writes the structure in any case, and does that before it calls
-- another function.
function queue_flags.create(base, name, seen)
  local key = keys_of(base)[name]
  if seen and seen[name] then return key end
  local features, letter = seen and seen.features, letter_of(name)
  if features == nil then features = redis.call('HGET', base .. ':meta2', 'features') end
  -- The last step of a migration sets all flags.
  if features and features ~= queue_flags.MIGRATING and not string.find(features, letter, 1, true) then
    features = features .. letter
    redis.call('HSET', base .. ':meta2', 'features', features)
  end
  if seen then seen[name], seen.features = true, features end
  return key
end

-- Return the names of existing structures without a flag.
function queue_flags.missing(base)
  local features, found, missing = redis.call('HGET', base .. ':meta2', 'features'), {}, {}
  if not features then return missing end
  look_up(base, ALL, found)
  for _, name in ipairs(STRUCTURES) do
    if found[name] and not string.find(features, letter_of(name), 1, true) then missing[#missing + 1] = name end
  end
  return missing
end

-- Return true if lines of a queue may have the form of earlier builds, see key_lines.lua.
function queue_flags.may_have_old_lines(base)
  return not have_new_lines[base]
end

function queue_flags.note_old_lines(base)
  have_new_lines[base] = nil
end

-- Another text of the library may have added compact jobs that set a lease, without the note of compact_adds.lua.
local function note_own_leases(base, has_compact, seen)
  local value = redis.call('HGET', base .. ':meta2', 'own_leases')
  if value and not has_compact then
    redis.call('HDEL', base .. ':meta2', 'own_leases')
  elseif not value and has_compact and not compared[base] then
    redis.call('HSET', base .. ':meta2', 'own_leases', '1')
    if seen then seen.own_leases = true end
  end
end

-- Compare the flags with the structures and correct them. From now on, this text trusts them. seen: the table of
-- queue_flags.at, which is corrected too. The caller has checked the layout.
function queue_flags.compare(base, seen)
  local found, letters, key = {}, '', base .. ':meta2'
  look_up(base, ALL, found)
  for _, name in ipairs(STRUCTURES) do
    if found[name] then letters = letters .. letter_of(name) end
    if seen then seen[name] = found[name] end
  end
  if seen then seen.features = letters end
  if redis.call('HGET', key, 'features') ~= letters then redis.call('HSET', key, 'features', letters) end
  -- This text stores no line in the old form. So none is left if none was there at one instant.
  if not have_new_lines[base] and not exists(base .. ':keyed') then have_new_lines[base] = true end
  note_own_leases(base, found.compact, seen)
  if compared[base] then return end
  if n_compared == MOST_COMPARED then compared, have_new_lines, n_compared = {}, {}, 0 end
  compared[base], n_compared = true, n_compared + 1
  queue_flags.distrust(base)    -- see entries.lua
end

-- Return true if this text has compared the flags of a queue, and has marked the entries that another text may have
-- appended.
function queue_flags.is_compared(base)
  return compared[base]
end

-- Return the state of one function call. Files that add other fields describe them.
--   now, past  ms, and the microseconds beyond them
--   seen       the table of queue_flags.at
--   lines      the events noted so far, see events.lua
--   startable  the number of jobs that became startable, see wakeup.lua
--   of keyed.lua:
--     touched             the keys to review
--     ended               other keys to review, see keyed.note_freed
--     freed               keys that have been reviewed and are not in `ready` yet, see keyed.review
--     several             how many jobs of these keys may start, if more than one, see keyed.note_several
--     has_idle            true if a worker is idle, nil if that is not known
--     entered             the jobs that are not in `keyed` yet
--     key_limits          the limits of keys that were read so far; counts, starts, tokens: their running jobs, stored
--                         starts and tokens, by key
--     slept               true if a key was added to `sleeping`
--   added      `now` as text, for records
--   block, nth   the sequence numbers used so far, see order.lua
--   open_at    the instant from which more jobs may start, ms; full: true if only the end of a run makes room, see
--              limits.lua
--   behind     there may be more due jobs or keys, see scheduled.lua
--   lock       of a claim: the caller's lease, ms; shortest: the shortest lease of the jobs that it claims
function queue_flags.call(base)
  local now, past = clock.now()
  return {now = now, past = past, seen = queue_flags.at(base), lines = {}, startable = 0}
end
