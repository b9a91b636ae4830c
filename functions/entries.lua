-- entries: the entries of `fifo`, the stream of waiting jobs. The run of a job that waited there is its pending entry.
-- The token of the run is "p<id of the entry>". The id is "<number>-<ms>": a number from the counter of generated ids,
-- and the time of the entry. The fields of a plain job are its name and data (and opts, ''), see plain.lua. For any
-- other job they are '' and the job's id. The runs of all other jobs are in `runs`, see runs.lua.

-- few: for fewer entries XDEL costs less than finding out what XTRIM may delete. A field of a table so that a test
-- build can change it. fenced: false only in a test build.
local entries = {few = 4, fenced = true}
entries.SMALL = 4096             -- bytes of the data of a job that a worker may claim directly
local SPECIAL_AT_ONCE = 15

-- Return a flat list of names and values as a table.
local function named(flat)
  local fields = {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

-- Return the fields of XINFO GROUPS for the group of a stream, {} if there is none.
function entries.group_of(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for _, group in ipairs(groups.err and {} or groups) do
    local fields = named(group)
    if fields.name == GROUP then return fields end
  end
  return {}
end

-- Return the number in the highest id that `fifo` ever had, nil if it does not exist.
local function last_number(base)
  local stream = redis.pcall('XINFO', 'STREAM', base .. ':fifo')
  local id = not stream.err and named(stream)['last-generated-id']
  return id and string.match(id, '^%d+')
end

-- Return the id of the last entry that was delivered, '0-0' if none was.
function entries.last_delivered(stream)
  return entries.group_of(stream)['last-delivered-id'] or '0-0'
end

-- Return true if entries of completed plain jobs may come after the last delivered one, because the group was destroyed
-- and delivers all entries again. delivered: the id of the last delivered entry.
function entries.may_repeat(base, delivered)
  return delivered == '0-0' or redis.call('HEXISTS', base .. ':meta2', 'regrouped') == 1
end

-- Acknowledge entries of one stream. Return how many of them were pending.
function entries.acknowledge(stream, raw)
  return #raw > 0 and in_chunks('XACK', stream, GROUP, raw) or 0
end

-- The entries of plain jobs leave `fifo`. Their records, if they have some, are from now on like any other records.
local function forget_recorded(stream, raw)
  local base = string.match(stream, '^(.*):fifo$')
  if not base or not exists(base .. ':recorded') then return end
  in_chunks('SREM', base .. ':recorded', nil, raw)
end

function entries.delete(stream, raw)
  if #raw == 0 then return end
  in_chunks('XDEL', stream, nil, raw)
  forget_recorded(stream, raw)
end

do
  -- Return the id up to which every entry has been delivered and is not pending any more, exclusive; nil: none.
  local function first_open(stream)
    local rows = redis.pcall('XPENDING', stream, GROUP, '-', '+', '1')
    if rows.err then return nil end
    if rows[1] then return rows[1][1] end
    local last = entries.group_of(stream)['last-delivered-id']
    local ms, number = string.match(last or '', '^(%d+)%-(%d+)$')
    return ms and ms .. '-' .. digits(number + 1)
  end

  -- Delete entries that this call has acknowledged, all of which were pending.
  --
  -- XDEL searches a node of up to 100 entries for each id, which was a quarter of the server's work for a plain job.
  -- But runs that end together are often the oldest of their stream, and one XTRIM deletes them without a search. It
  -- must not delete the entry of another job. It cannot: an entry is undelivered, pending, or one of these, and the
  -- bound is the first pending entry, or the first undelivered one if none is pending. The number of deleted entries
  -- shows if XTRIM has deleted all of them. If not, an older run is still active, and XDEL deletes the rest.
  --
  -- The kept entries of completed plain jobs are neither pending nor undelivered, and must stay. strangers: true if
  -- there may be such entries.
  function entries.delete_acknowledged(stream, raw, strangers)
    local bound = #raw >= entries.few and not strangers and first_open(stream)
    if bound and redis.call('XTRIM', stream, 'MINID', bound) == #raw then
      forget_recorded(stream, raw)
    else
      entries.delete(stream, raw)
    end
  end
end

function entries.drop(stream, raw)
  entries.acknowledge(stream, raw)
  entries.delete(stream, raw)
end

-- Reserve the next n numbers of the queue. Return the last one. An entry must have a higher number than all earlier
-- entries of `fifo`. A counter that starts anew was lost, unless the queue is new. It then continues behind the last
-- entry.
function entries.reserve(base, n)
  local last = redis.call('INCRBY', keys_of(base).id, digits(n))
  if last > n then return last end
  local number = last_number(base)
  return number and redis.call('INCRBY', base .. ':id', number) or last
end

do
  local function mark(base, number)
    redis.call('HSET', base .. ':meta2', 'special', digits(number))
  end

  -- Note that the entry with this number is special: only a function may claim it, see direct_claim.lua. The numbers of
  -- a call grow. One command marks several of them, because most calls append several special entries or none.
  --   meta2  special: each entry of `fifo` with a higher number belongs to a small plain job that sets no lease
  function entries.mark_special(base, number, call)
    if call.special and number <= call.special then return end
    call.special = number + SPECIAL_AT_ONCE
    mark(base, call.special)
  end

  -- Another text of the library may have appended entries without a mark. Mark all entries.
  function queue_flags.distrust(base)
    local number = last_number(base)
    if number and number ~= '0' then mark(base, tonumber(number)) end
  end
end

-- Return true if the entry of a plain job is special. opts: its packed options.
function entries.is_special(data, opts)
  return #data > entries.SMALL or opts ~= '' and string.find(opts, '\161l', 1, true) ~= nil
end

-- Return a number for a job with a record that becomes ready, as text. call.number: the number that an add reserved for
-- it.
function entries.next_number(base, call)
  local number = call.number or digits(entries.reserve(base, 1))
  call.number = nil
  return number
end

-- Append the entry of a job with a record to `fifo`. Return its id. hint: the read hint, see record.lua.
function entries.append(base, id, hint, call)
  local number = entries.next_number(base, call)
  entries.mark_special(base, tonumber(number), call)
  return redis.call('XADD', base .. ':fifo', number .. '-' .. digits(call.now), '', hint .. id)
end

-- Return the job of an entry of `fifo`.
function entries.job_of(raw, fields)
  if fields[1] == '' then return string.sub(fields[2], 2) end
  return string.match(raw, '^%d+')
end

-- Return the job of an entry, nil, its token, and its fields. Return nil if the entry is missing.
function entries.find(stream, raw)
  local found = redis.call('XRANGE', stream, raw, raw)[1]
  if not found then return nil end
  return entries.job_of(raw, found[2]), nil, 'p' .. raw, found[2]
end

-- Return true if one entry id comes before another.
function entries.before(a, b)
  local first, after = string.match(a, '^(%d+)%-(%d+)$')
  local second, later = string.match(b, '^(%d+)%-?(%d*)$')
  if first == second then return tonumber(after) < tonumber(later ~= '' and later or 0) end
  if #first ~= #second then return #first < #second end
  return first < second
end

-- Return the row of XPENDING of a running job { id, consumer, idle ms, deliveries }, or nil.
function entries.pending_row(stream, raw)
  local rows = redis.pcall('XPENDING', stream, GROUP, raw, raw, 1)
  return not rows.err and rows[1] or nil
end

-- Return the number of pending entries. (The summary form of XPENDING would list every consumer.)
function entries.pending_count(stream)
  return entries.group_of(stream).pending or 0
end

-- Create the consumer group of `fifo` if it does not exist. If it was destroyed, the server delivers all entries again,
-- also for completed plain jobs, which must not run again. So claims look for such entries up to the present last one.
function entries.ensure_fifo_group(base)
  local fifo = base .. ':fifo'
  if redis.pcall('XGROUP', 'CREATE', fifo, GROUP, '0', 'MKSTREAM').err then return end
  local last = redis.call('XREVRANGE', fifo, '+', '-', 'COUNT', 1)[1]
  if last then redis.call('HSET', base .. ':meta2', 'regrouped', string.match(last[1], '^%d+')) end
end
