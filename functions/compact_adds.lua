-- compact_adds: adds compact jobs, see compact.lua. A call collects them, and a few commands write all jobs of a step.

local compact_adds = {}

-- Return true if a job with these options of an add may be compact.
function compact_adds.fits(extra)
  if extra.cost then return false end
  for name in pairs(extra) do
    if name ~= 'key' and name ~= 'lifo' and name ~= 'priority' and name ~= 'alone' then return false end
  end
  return extra.key ~= nil or extra.lifo or (extra.priority or 0) > 0
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
  local sequence = order.next(base, call)
  call.startable = call.startable + 1
  if extra.lifo then
    append(call, 'lifo', sequence, id)
    return added .. ' l'
  end
  local priority = digits(extra.priority)
  append(call, 'prioritized', priority, sequence .. id)
  return sequence .. ' ' .. added .. ' p ' .. priority
end

-- Collect a job that is being added. The caller ends its step with compact_adds.write.
function compact_adds.add(base, id, name, data, opts, extra, added, call)
  append(call, 'compact', id, compact.line(enter(base, id, extra, added, call), name, data, opts))
end

-- Write members of a zset or fields of a hash, flat. widens: several of them go into a structure that is new, see
-- WIDENER. remove: the command that removes one.
local function write(key, command, remove, widens, flat)
  if widens then redis.call(command, key, command == 'ZADD' and '0' or WIDENER, WIDENER) end
  in_chunks(command, key, nil, flat)
  if widens then redis.call(remove, key, WIDENER) end
end

-- Write the collected jobs.
function compact_adds.write(base, call)
  if not call.compact then return end
  local seen, many = call.seen, #call.compact >= 2 * MANY
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
