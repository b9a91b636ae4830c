-- one_plain: adds one plain job, and starts it on an idle worker. A program that waits for each of its adds, or for the
-- result of each job, makes this call. It has the same effect as the general path of add.lua, wakeup.lua and push.lua.
-- That path builds tables and functions for any number of jobs, which is a fifth of the instructions of a call with one
-- job.

local one_plain = {}
local SMALL = entries.SMALL
local ARGUMENTS, AWAITED_ARGUMENTS = 7, 9
-- matches the packed options of a job whose client waits for the result, perhaps for a limited time
local REPLY = '^[\129\130]\165reply'
local OTHERS = {'returned', 'lifo', 'ready', 'limits', 'timer', 'event_rules'}
-- Patterns of flags: of the structures for which an add or a push looks at more than this file does, and of `waiters`.
-- The first call makes them, because the standard functions of Lua are missing while the library is loaded.
local others, waiters

-- Return true if a queue has nothing that this file does not look at. meta: the fields of `meta2` that the call has
-- read. The job of the call is new, so `expiry` cannot have it.
local function is_usual(base, meta)
  if not others then others, waiters = queue_flags.pattern_of(OTHERS), queue_flags.pattern_of({'waiters'}) end
  return not (meta[1] and meta[1] ~= '0') and meta[2] ~= '1' and not meta[5]
    and queue_flags.are_known(meta[6]) and queue_flags.is_compared(base) and not string.find(meta[6], others)
end

-- Return true if an addPlain call has one job.
function one_plain.is_alone(args)
  return #args == ARGUMENTS and args[6] == '1'
end

-- Return true if this file can add the job of an addPlain call with one job.
function one_plain.fits(base, args, meta)
  return args[5] == '' and #args[7] <= SMALL and #args[4] <= SMALL and is_usual(base, meta)
end

-- Return the reply channel of the only job of an addJob call, and its time to live, if this file can add the job.
function one_plain.reply_of(base, args, meta)
  if meta[3] == 'keyed' or #args[6] > SMALL or #args[5] > SMALL or not is_usual(base, meta) then return nil end
  local extra = cmsgpack.unpack(args[8])
  local channel, ttl = extra.reply, tonumber(extra.ttl)
  if type(channel) == 'string' and (ttl or string.byte(args[8]) == 129) then return channel, ttl end
end

-- Return true if an addJob call may have one plain job, whose client waits for the result.
function one_plain.is_awaited(args)
  return #args == AWAITED_ARGUMENTS and args[3] == '1' and args[4] == '' and args[7] == ''
    and string.find(args[8], REPLY) ~= nil
end

-- Start the job on the idle worker with the most free slots. Return true if it has been pushed and is not in call.lines
-- yet. Return false in every rare case, in which wakeup.wake decides about this worker again; nil if no worker is idle.
local function start(base, entry, name, data, call)
  local key = base .. ':idle'
  local popped = redis.call('ZPOPMAX', key)
  local consumer = popped[1]
  if not consumer then return nil end
  local message, lock = push.claim_one(base, consumer, entry, name, data, call)
  if message then
    local heard = wakeup.send(base, consumer, message)
    if heard and heard > 0 then
      push.note_one(base, consumer, entry, lock, call)
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
  local call = {now = now, args = args, first = number, lines = {added = {'added', id, name}},
    seen = {features = meta[6], shortest_lease = number_of(meta[7]),
      waiters = channel and string.find(meta[6], waiters)}}
  redis.call('XADD', base .. ':fifo', entry, name, data)
  if channel then marks.note_waiter(base, id, channel, call) end
  local is_pushed = start(base, entry, name, data, call)
  if is_pushed then
    events.append(base, 'added' .. SEP .. id .. SEP .. name .. '\nactive' .. SEP .. id, 2, call)
    return id, ''
  end
  if ttl then marks.note_expiry(base, id, ttl, call) end
  if is_pushed == false then wakeup.wake(base, 1, call) end
  events.write(base, call)
  return id, {}
end

-- Add the job of an addPlain call. Return the reply, and if the job was pushed also the packed one.
function one_plain.add(base, args, meta, now)
  local id, ids = add_one(base, args, args[4], args[7], nil, nil, meta, now)
  return {now, id, ids, 1}, ids == '' and '\148' .. packed_number(now) .. packed_text(id) .. '\160\1'
end

-- Add the job of an addJob call. channel, ttl: of one_plain.reply_of. Return what one_plain.add returns.
function one_plain.add_awaited(base, args, channel, ttl, meta, now)
  local id, ids = add_one(base, args, args[5], args[6], channel, ttl, meta, now)
  -- The server looks up seven names in each table of a reply, so there is none for outcomes.
  return {now, id, ids, '', 1}, ids == '' and '\149' .. packed_number(now) .. packed_text(id) .. '\160\160\1'
end
