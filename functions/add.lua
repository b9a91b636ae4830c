-- add: the only way in.
--   addJob    lane number n { id name data opts extra }*n -> { now, first, ids, outcomes }
--     id      '' for a generated one; extra: '' or cmsgpack { delay | at | ttl | reply }, ms and a reply channel
--     first   the first generated id when all generated ids follow each other; else '' and `ids` lists them in order
--     outcomes  flat { position, word }: positions (from 1) that were not added: "duplicate" or "completed"
-- O(n). Refused as a whole when memory is full; nothing is written before every argument has been read.

local add = {}
local FIELDS = 5

local function parse(args)
  local n = integer('count', args[3])
  if n < 1 or #args ~= 3 + n * FIELDS then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' jobs') end
  local extras, generated, numeric = {}, 0, nil
  for i = 1, n do
    local at = 3 + (i - 1) * FIELDS
    local id = args[at + 1]
    if id == '' then
      generated = generated + 1
    elseif string.find(id, '^%d+$') then
      numeric = numeric or {}
      numeric[id] = true
    end
    if args[at + 5] ~= '' then extras[i] = cmsgpack.unpack(args[at + 5]) end
  end
  return n, extras, generated, numeric
end

-- Reserve generated ids. They are consecutive unless a custom id that looks like one was ever used.
-- numeric: the set of such ids in this call, nil if there is none; ever_numeric: whether an earlier call had one.
local function allocate(base, n, numeric, ever_numeric)
  if n == 0 then return '', nil end
  local last = redis.call('INCRBY', base .. ':id', n)
  if not numeric and not ever_numeric then return digits(last - n + 1), nil end
  local ids, candidate, misses = {}, last - n + 1, 0
  while #ids < n do
    if candidate > last then last = redis.call('INCRBY', base .. ':id', n - #ids) end
    local id = digits(candidate)
    if not (numeric and numeric[id]) and not exists(base .. ':job:' .. id) then
      ids[#ids + 1] = id
    else
      misses = misses + 1
      -- A long run of taken ids is jumped over in growing steps: walking it would be work without a bound.
      if misses % 64 == 0 then
        last = redis.call('INCRBY', base .. ':id', 2 ^ (misses / 64 + 5))
        candidate = last
      end
    end
    candidate = candidate + 1
  end
  return '', ids
end

local function is_taken(base, id, numeric)
  local state = record.place(base, id)
  if not state then
    if numeric and numeric[id] then redis.call('HSET', base .. ':meta', 'numeric_ids', '1') end
    return nil
  end
  return state == 'completed' and 'completed' or 'duplicate'
end

local function with_extra(base, id, job, extra, now)
  local due = extra.at or (extra.delay and now + extra.delay)
  if extra.ttl then redis.call('ZADD', base .. ':expiry', digits(now + extra.ttl), id) end
  if extra.reply then redis.call('HSET', base .. ':waiters', id, extra.reply) end
  if due and due > now then
    redis.call('HSET', job, 'place', 'delayed -', 'added', now, 'claim', '0 0 0')
    scheduled.push(base, id, due)
    return true
  end
  redis.call('HSET', job, 'place', scheduled.to_stream(base, id))
  return false
end

function add.jobs(base, args)
  local n, extras, generated, numeric = parse(args)
  local now, lines, outcomes, startable = clock.now(), {}, {}, 0
  local before = next(extras) and wakeup.next_due(base)
  local meta = redis.call('HMGET', base .. ':meta', 'paused', 'numeric_ids')
  local paused = meta[1] == '1'
  local first, ids = allocate(base, generated, numeric, meta[2] == '1')
  local counter, stream = tonumber(first), base .. ':stream'
  local taken_ids = 0
  for i = 1, n do
    local at = 3 + (i - 1) * FIELDS
    local id, name, opts, extra = args[at + 1], args[at + 2], args[at + 4], extras[i]
    local taken
    if id ~= '' then
      taken = is_taken(base, id, numeric)
    elseif ids then
      taken_ids = taken_ids + 1
      id = ids[taken_ids]
    else
      id = digits(counter)
      counter = counter + 1
    end
    if taken then
      outcomes[#outcomes + 1] = i
      outcomes[#outcomes + 1] = taken
    else
      local job, delayed = base .. ':job:' .. id, false
      if extra then
        redis.call('HSET', job, 'name', name, 'data', args[at + 3])
        delayed = with_extra(base, id, job, extra, now)
      else
        redis.call('HSET', job, 'name', name, 'data', args[at + 3], 'place',
          'waiting s' .. redis.call('XADD', stream, '*', opts == '' and 'i' or 'o', id))
      end
      if opts ~= '' then redis.call('HSET', job, 'opts', opts) end
      if not delayed then startable = startable + 1 end
      events.note(lines, 'added', id, name)
      if delayed then events.note(lines, 'delayed', id) end
    end
  end
  events.write(base, lines, now)
  if not paused then wakeup.wake(base, startable) end
  if next(extras) then wakeup.due_changed(base, before, nil, {paused = paused}) end
  return {now, first, ids or {}, outcomes}
end

request.register('addJob', add.jobs)
