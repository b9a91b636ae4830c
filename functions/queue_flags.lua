-- queue_flags: which features a queue uses, read with two commands at the start of a call.
-- Every command inside a function costs a microsecond or more, so a feature that a queue does not use must not cost
-- any. The structure of an unused feature does not exist. One EXISTS over all of them finds that out.

local queue_flags = {}
-- Neighbours often exist together, which saves steps of the search below.
local STRUCTURES = {'waiters', 'held', 'expiry', 'revoking', 'returned', 'scheduled', 'lifo', 'prioritized', 'ready',
  'sleeping', 'resting', 'pauses', 'limits', 'deduped', 'timer', 'outbox', 'moved',
  'running', 'results', 'recorded', 'started'}

local last_base, last_keys

-- Return the store keys of the structures. Calls of one queue often follow each other, so the last list is kept.
local function keys_of(base)
  if base ~= last_base then
    local keys = {}
    for i, name in ipairs(STRUCTURES) do keys[i] = base .. ':' .. name end
    last_base, last_keys = base, keys
  end
  return last_keys
end

-- Note which of keys[from..last] exist. Few of them do, so bisecting needs few commands.
local function look(base, keys, from, last, seen)
  local count = redis.call('EXISTS', unpack(keys, from, last))
  if count == 0 then return end
  if count == last - from + 1 then
    for i = from, last do seen[STRUCTURES[i]] = true end
    return
  end
  local middle = math.floor((from + last) / 2)
  look(base, keys, from, middle, seen)
  look(base, keys, middle + 1, last, seen)
end

-- Return { paused, touched, turn, dead_letter, incarnation, limited, lane_lost, keep = { completed, failed },
-- <structure> = true if it exists }. limited: keys have limits, see keyed.lua. lane_lost: `lane` may hold entries that
-- are not pending, see entries.lua. A function that creates one of the structures updates this table.
function queue_flags.at(base)
  local meta = redis.call('HMGET', base .. ':meta', 'paused', 'keep_completed', 'keep_failed', 'touched',
    'dead_letter', 'turn', 'incarnation', 'key_limits', 'lane_lost', 'horizon', 'regrouped')
  local seen = {paused = meta[1] == '1', touched = meta[4] == '1', turn = tonumber(meta[6] or 0),
    dead_letter = meta[5] and meta[5] ~= '' and meta[5] or nil, incarnation = meta[7],
    limited = meta[8] == '1', lane_lost = meta[9] and true,
    horizon = tonumber(meta[10] or nil), regrouped = tonumber(meta[11] or nil), keep = {completed = meta[2] or '', failed = meta[3] or ''}}
  look(base, keys_of(base), 1, #STRUCTURES, seen)
  return seen
end

-- The state of one function call:
--   now, past  ms, and the microseconds beyond them
--   seen       the table of queue_flags.at
--   lines      the events noted so far, see events.lua
--   startable  the number of jobs that became startable, see wakeup.lua
--   touched, released, entered, key_limits, slept   of keyed.lua: keys to review, the ones without running jobs,
--                                                   jobs not yet in `keyed`, limits read so far, and true if a key went
--                                                   to sleep
--   added      `now` as text, for records
--   block, nth   the sequence numbers used so far, see order.lua
--   open_at, full   when more jobs may start, or that only the end of a run makes room, see limits.lua
--   behind     there may be more due jobs or keys, see scheduled.lua
--   lock       of a claim: the caller's lease, ms
function queue_flags.call(base)
  local now, past = clock.now()
  return {now = now, past = past, seen = queue_flags.at(base), lines = {}, startable = 0}
end
