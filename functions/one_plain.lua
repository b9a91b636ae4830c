-- one_plain: adds one plain job without options, and starts it on an idle worker. A program that waits for each of its
-- adds makes this call. It has the same effect as the general way of add.lua, wakeup.lua and push.lua. That way builds
-- tables and functions for any number of jobs, which is a fifth of the instructions of a call with one job.

local one_plain = {}
local SMALL = entries.SMALL
local ARGUMENTS = 7
local OTHERS = {'returned', 'lifo', 'ready', 'limits', 'timer', 'expiry', 'event_rules'}
-- matches the flags of a queue in which an add or a push looks at more than this file does; made by the first call,
-- because the standard functions of Lua are missing while the library is loaded
local others

-- Return true if this file can add the jobs of an addPlain call. meta: the fields of `meta2` that the call has read.
function one_plain.fits(base, args, meta)
  others = others or queue_flags.pattern_of(OTHERS)
  return #args == ARGUMENTS and args[6] == '1' and args[5] == '' and #args[7] <= SMALL and #args[4] <= SMALL
    and not (meta[1] and meta[1] ~= '0') and meta[2] ~= '1' and not meta[5]
    and queue_flags.are_known(meta[6]) and queue_flags.is_compared(base) and not string.find(meta[6], others)
end

-- Start the job on the idle worker with the most free slots. Return true if it has been pushed and is not in call.lines
-- yet. In every rare case, wakeup.wake decides about this worker again.
local function start(base, entry, name, data, call)
  local key = base .. ':idle'
  local popped = redis.call('ZPOPMAX', key)
  local consumer = popped[1]
  if not consumer then return false end
  local message, lock = push.claim_one(base, consumer, entry, name, data, call)
  if message then
    local heard = wakeup.send(base, consumer, message)
    if heard and heard > 0 then
      push.note(base, consumer, {'p' .. entry}, lock, call)
      return true
    end
    push.undo(base, {{entry}})
  end
  redis.call('ZADD', key, popped[2], consumer)
  wakeup.wake(base, 1, call)
  return false
end

-- Add the job of an addPlain call. Return the reply.
function one_plain.add(base, args, meta, now)
  local number, name, data = entries.reserve(base, 1), args[4], args[7]
  local id = digits(number)
  local entry = id .. '-' .. digits(now)
  local call = {now = now, args = args, first = number, lines = {added = {'added', id, name}},
    seen = {features = meta[6], shortest_lease = tonumber(meta[7] or nil)}}
  redis.call('XADD', base .. ':fifo', entry, name, data)
  if start(base, entry, name, data, call) then
    events.append(base, 'added' .. SEP .. id .. SEP .. name .. '\nactive' .. SEP .. id, 2, call)
  else
    events.write(base, call)
  end
  return {now, id, {}, 1}
end
