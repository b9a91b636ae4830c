-- compact_adds: adds compact jobs, see compact.lua. A call collects them, and a few commands write all jobs of a step.
--   meta2  own_leases: 1 if a compact job may have a lease in its options, so that claims look at the options of each

local compact_adds = {}

-- Return true if a job with these options of an add may be compact.
function compact_adds.fits(extra)
  if extra.cost then return false end
  for name in pairs(extra) do
    if name ~= 'key' and name ~= 'lifo' and name ~= 'priority' and name ~= 'alone' then return false end
  end
  return extra.key ~= nil or extra.lifo or (extra.priority or 0) > 0
end

-- Note the options of compact jobs. Options with a lease contain the packed name "l".
local function note_options(base, opts, call)
  if opts == '' or call.has_own_lease or not string.find(opts, '\161l', 1, true) then return end
  redis.call('HSET', base .. ':meta2', 'own_leases', '1')
  call.has_own_lease = true
end

local function append(call, list, a, b)
  local flat = call[list]
  if not flat then
    flat = {}
    call[list] = flat
  end
  local n = #flat
  flat[n + 1], flat[n + 2] = a, b
end

-- Let a job wait in the structure of its kind. Return the head of its text.
local function enter(base, id, extra, added, call)
  if extra.key then return (select(2, keyed.enter_first(base, id, extra, added, call, 'c'))) end
  call.startable = call.startable + 1
  if extra.lifo then
    append(call, 'lifo', order.next(base, call), id)
    return added .. ' l'
  end
  local priority = digits(extra.priority)
  append(call, 'prioritized', prioritized.score(priority, id), id)
  return added .. ' p ' .. priority
end

-- Collect a job that is being added. The caller ends its step with compact_adds.write.
function compact_adds.add(base, id, name, data, opts, extra, added, call)
  note_options(base, opts, call)
  append(call, 'compact', id, compact.line(enter(base, id, extra, added, call), name, data, opts))
end

-- Return the text that is between the head of a job and its data, see compact.line.
local function middle(name, opts)
  if opts == '' then return SEP .. name .. SEP end
  return SEP .. name .. RS .. digits(#opts) .. SEP .. opts
end

-- The following functions collect the next n jobs of a group, see grouped_adds.lua.

-- Return the list of this name and the list of the texts, with their lengths.
local function lists_of(call, name)
  local list, texts = call[name] or {}, call.compact or {}
  call[name], call.compact = list, texts
  return list, #list, texts, #texts
end

function compact_adds.lifo(base, state, at, from, n, _, call)
  local args, ids, sequences, k, added = state.args, state.ids, state.sequences, state.k, state.added
  note_options(base, args[at + 1], call)
  local list, size, texts, length = lists_of(call, 'lifo')
  local name, noted = args[at], #added
  local head = state.now .. ' l' .. middle(name, args[at + 1])
  for i = 1, n do
    local id = ids[k + i]
    list[size + 1], list[size + 2] = sequences[k + i], id
    texts[length + 1], texts[length + 2] = id, head .. args[from]
    added[noted + 1], added[noted + 2] = id, name
    size, length, noted, from = size + 2, length + 2, noted + 2, from + 1
  end
  call.startable = call.startable + n
end

-- The options contain the priority of all jobs of the group, or the values of a job are its priority and its data.
function compact_adds.prioritized(base, state, at, from, n, kind, call)
  local args, ids, k, added = state.args, state.ids, state.k, state.added
  note_options(base, args[at + 1], call)
  local list, size, texts, length = lists_of(call, 'prioritized')
  local name, noted, fixed, last = args[at], #added, kind.priority, kind.width - 1
  local before, after = state.now .. ' p ', middle(name, args[at + 1])
  local digits_of_id, scores, heads = 0, nil, {}
  for i = 1, n do
    local id, priority = ids[k + i], fixed or args[from]
    if #id ~= digits_of_id then digits_of_id, scores = #id, {} end
    local score, head = scores[priority], heads[priority]
    if not score then
      score, head = prioritized.score(priority, id), before .. priority .. after
      scores[priority], heads[priority] = score, head
    end
    list[size + 1], list[size + 2] = score, id
    texts[length + 1], texts[length + 2] = id, head .. args[from + last]
    added[noted + 1], added[noted + 2] = id, name
    size, length, noted, from = size + 2, length + 2, noted + 2, from + last + 1
  end
  call.startable = call.startable + n
end

-- Their only option is a key, and the values of a job are its key and its data.
function compact_adds.keyed(base, state, at, from, n, _, call)
  local args, ids, sequences, k, added = state.args, state.ids, state.sequences, state.k, state.added
  note_options(base, args[at + 1], call)
  local entered, size, texts, length = lists_of(call, 'entered')
  local name, noted = args[at], #added
  local tail, detail, before_data = ' 1000 ' .. state.now .. ' ', name .. RS, middle(name, args[at + 1])
  local fresh = keyed.fresh_of(call)
  local keys, lines, ready, t = fresh.keys, fresh.lines, fresh.ready, #fresh.keys
  local last = 2 * t
  for i = 1, n do
    local id, sequence, key = ids[k + i], sequences[k + i], args[from]
    keys[t + 1], ready[last + 1], ready[last + 2] = key, sequence, key
    lines[last + 1], lines[last + 2], t, last = key, sequence .. 'c' .. id, t + 1, last + 2
    entered[size + 1], entered[size + 2] = sequence, id
    texts[length + 1], texts[length + 2] = id, 'k 0 ' .. sequence .. tail .. key .. before_data .. args[from + 1]
    added[noted + 1], added[noted + 2] = id, detail .. key
    size, length, noted, from = size + 2, length + 2, noted + 2, from + 2
  end
end

-- Write members of a zset or fields of a hash, flat. widens: several of them go into a structure that is new, see
-- WIDENER. remove: the command that removes one.
local function write(key, command, remove, widens, flat)
  if widens then redis.call(command, key, command == 'ZADD' and '0' or WIDENER, WIDENER) end
  in_chunks(command, key, nil, flat)
  if widens then redis.call(remove, key, WIDENER) end
end

-- Return the name of the structure in which the only collected job waits.
local function structure_of(call)
  return call.lifo and 'lifo' or call.prioritized and 'prioritized' or 'ready'
end

-- Write the collected jobs. If there is only one, the call may push it, see compact_pushes.lua: `alone` is its id and
-- its text, and `alone_in` the name of the structure in which it waits.
function compact_adds.write(base, call)
  if not call.compact then return end
  local seen, many = call.seen, #call.compact >= 2 * MANY
  if #call.compact == 2 then call.alone, call.alone_in = call.compact, structure_of(call) end
  local is_new = {compact = not seen.compact, lifo = not seen.lifo, prioritized = not seen.prioritized}
  write(queue_flags.create(base, 'compact', seen), 'HSET', 'HDEL', many and is_new.compact, call.compact)
  if call.lifo then
    write(queue_flags.create(base, 'lifo', seen), 'ZADD', 'ZREM', many and is_new.lifo, call.lifo)
  end
  if call.prioritized then
    write(queue_flags.create(base, 'prioritized', seen), 'ZADD', 'ZREM', many and is_new.prioritized, call.prioritized)
  end
  call.compact, call.lifo, call.prioritized = nil, nil, nil
end
