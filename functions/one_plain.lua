-- one_plain: adds one plain job, and starts it on an idle worker. A program that waits for each of its adds, or for the
-- result of each job, makes this call. It has the same effect as the general path of add.lua, wakeup.lua and push.lua.
-- That path builds tables and functions for any number of jobs, which is a fifth of the instructions of a call with one
-- job.

local one_plain = {}
local SMALL = entries.SMALL
local ARGUMENTS, SHORT = 7, 6
-- `n_equal` of request.remember_packed: a first byte and the beginning of a time
local EQUAL_BYTES, EQUAL_DIGITS = 8, 9
-- matches the packed options of a job whose client waits for the result, perhaps for a limited time
local REPLY = '^[\129\130]\165reply'
local OTHERS = {'returned', 'lifo', 'ready', 'limits', 'timer', 'event_rules'}

local are_usual, has_waiters

do
  -- Patterns of flags: of the structures for which an add or a push looks at more than this file does, and of
  -- `waiters`. The first call makes them, because the standard functions of Lua are missing while the library is
  -- loaded.
  local others, waiters
  local last, is_usual, has       -- most calls find the flags of the call before

  local function look(features)
    if not others then others, waiters = queue_flags.pattern_of(OTHERS), queue_flags.pattern_of({'waiters'}) end
    last, is_usual = features, queue_flags.are_known(features) and not string.find(features, others)
    has = features and string.find(features, waiters) ~= nil
  end

  -- Return true if a queue has none of the structures that this file does not look at. features: the field of `meta2`.
  function are_usual(features)
    if features ~= last then look(features) end
    return is_usual
  end

  -- Return true if a client may wait in the queue.
  function has_waiters(features)
    if features ~= last then look(features) end
    return has
  end
end

-- Return true if a queue has nothing that this file does not look at. meta: the fields of `meta2` that the call has
-- read. The job of the call is new, so `expiry` cannot have it.
local function is_usual(base, meta)
  return not (meta[1] and meta[1] ~= '0') and meta[2] ~= '1' and not meta[5] and are_usual(meta[6])
    and queue_flags.is_compared(base)
end

local last_extra, last_channel, last_ttl    -- a client that makes one request after the other sends the same options

-- Return the reply channel and the time to live in packed options that match REPLY; nil if they have others.
local function options_in(text)
  if text ~= last_extra then
    local extra = cmsgpack.unpack(text)
    local channel, ttl = extra.reply, tonumber(extra.ttl)
    if type(channel) ~= 'string' or not (ttl or string.byte(text) == 129) then return nil end
    last_extra, last_channel, last_ttl = text, channel, ttl
  end
  return last_channel, last_ttl
end

-- Return true if an addPlain call has one job.
function one_plain.is_alone(args)
  return #args == ARGUMENTS and args[6] == '1'
end

-- Return true if this file can add the job of an addPlain call with one job.
function one_plain.fits(base, args, meta)
  return args[5] == '' and #args[7] <= SMALL and #args[4] <= SMALL and is_usual(base, meta)
end

-- Return true if an addJob call has the short form.
function one_plain.is_short(args)
  return #args == SHORT
end

-- Return the reply channel of the job of a short addJob call, and its time to live, if this file can add the job.
function one_plain.reply_of(base, args, meta)
  if meta[3] == 'keyed' or #args[5] > SMALL or #args[4] > SMALL or not is_usual(base, meta) then return nil end
  return options_in(args[6])
end

-- Return true if the job of a short addJob call may be a plain one, whose client waits for the result.
function one_plain.is_awaited(args)
  return args[6] == last_extra or string.find(args[6], REPLY) ~= nil
end

-- Start the job on the idle worker with the most free slots. Return true if it has been pushed and is not in call.lines
-- yet. Return false in every rare case, in which wakeup.wake decides about this worker again; nil if no worker is idle.
local function start(base, entry, name, data, call)
  local key = keys_of(base).idle
  local popped = redis.call('ZPOPMAX', key)
  local consumer = popped[1]
  if not consumer then return nil end
  local channel = base .. ':wake:' .. consumer
  local message, lock, reply_key = push.claim_one(base, consumer, channel, entry, name, data, call)
  if message then
    local heard = wakeup.publish(channel, message)
    if heard and heard > 0 then
      push.note_one(base, reply_key, entry, lock, call)
      return true
    end
    push.undo(base, {{entry}})
  end
  redis.call('ZADD', key, popped[2], consumer)
  return false
end

-- Add a job. channel, ttl: of one_plain.reply_of. Return its id, and the `ids` of the reply.
local function add_one(base, args, name, data, channel, ttl, meta, now)
  local number = entries.reserve(base, 1)
  local id = digits(number)
  local entry = id .. '-' .. digits(now)
  local call = {now = now, args = args, first = number,
    seen = {features = meta[6], shortest_lease = number_of(meta[7]),
      waiters = channel and has_waiters(meta[6])}}
  redis.call('XADD', keys_of(base).fifo, entry, name, data)
  if channel then marks.note_waiter(base, id, channel, call) end
  local is_pushed = start(base, entry, name, data, call)
  if is_pushed then
    events.append(base, 'added' .. SEP .. id .. SEP .. name .. '\nactive' .. SEP .. id, 2, call)
    return id, ''
  end
  call.lines = {added = {'added', id, name}}
  if ttl then marks.note_expiry(base, id, ttl, call) end
  if is_pushed == false then wakeup.wake(base, 1, call) end
  events.write(base, call)
  return id, {}
end

-- Add the job of an addPlain call. Return what the callback of request.register returns.
function one_plain.add(base, args, meta, now)
  local id, ids = add_one(base, args, args[4], args[7], nil, nil, meta, now)
  if ids ~= '' then return {now, id, ids, 1} end
  local text = args[2] .. ' \148' .. packed_number(now) .. packed_text(id) .. '\160\1'
  return {now, id, ids, 1}, text, EQUAL_BYTES
end

-- Add the job of a short addJob call. channel, ttl: of one_plain.reply_of. Return what the callback of request.register
-- returns.
function one_plain.add_awaited(base, args, channel, ttl, meta, now)
  local id, ids = add_one(base, args, args[4], args[5], channel, ttl, meta, now)
  if ids ~= '' then return {now, id, ids, {}, 1} end
  local reply = digits(now) .. ' ' .. id
  return reply, args[2] .. ' ' .. string.char(160 + #reply) .. reply, EQUAL_DIGITS    -- see packed_text
end
