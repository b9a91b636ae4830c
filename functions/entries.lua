-- entries: the entries of the two streams. Every running job is a pending entry of one of them. The first character of
-- a lease token names the stream, and the rest is the id of the entry:
--   "s<id>"  `stream`, the waiting jobs: the job was claimed from it
--   "l<id>"  `lane`, the active stream: the job waited elsewhere. The entry has the field "h" and the job's id.
--   "k<id>"  `lane`, a keyed job. The entry has the field "k<key>" and the job's id: one field instead of two, because
--            each argument of a command costs time.

-- few: for fewer entries XDEL costs less than finding out what XTRIM may delete. A field of a table so that a test
-- build can change it.
local entries = {few = 4}

-- Return the fields of XINFO GROUPS for the group of a stream, {} if there is none.
function entries.group_of(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for _, group in ipairs(groups.err and {} or groups) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    if fields.name == GROUP then return fields end
  end
  return {}
end

function entries.stream_of(base, entry)
  return base .. (string.sub(entry, 1, 1) == 's' and ':stream' or ':lane'), string.sub(entry, 2)
end

-- Acknowledge entries of one stream. Return how many of them were pending.
function entries.acknowledge(stream, raw)
  return #raw > 0 and in_chunks('XACK', stream, GROUP, raw) or 0
end

function entries.delete(stream, raw)
  if #raw > 0 then in_chunks('XDEL', stream, nil, raw) end
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
  -- shows if XTRIM has met all of them. Otherwise an older run goes on, and XDEL deletes the rest.
  --
  -- The rule does not hold for entries of `lane` whose group was destroyed (`lane_lost`): they are neither pending nor
  -- undelivered, and their jobs are still to be returned. strangers: there may be such entries.
  function entries.delete_acknowledged(stream, raw, strangers)
    local bound = #raw >= entries.few and not strangers and first_open(stream)
    if bound and redis.call('XTRIM', stream, 'MINID', bound) == #raw then return end
    entries.delete(stream, raw)
  end
end

function entries.drop(stream, raw)
  entries.acknowledge(stream, raw)
  entries.delete(stream, raw)
end

-- Return the key in the fields of an entry of `lane`, nil if it has none.
function entries.key_of(fields)
  local field = fields[1]
  return string.sub(field, 1, 1) == 'k' and string.sub(field, 2) or nil
end

-- Return the job of an entry, its key if it has one, and the entry with its prefix. Return nil if the entry is missing.
function entries.find(stream, raw)
  local found = redis.call('XRANGE', stream, raw, raw)[1]
  if not found then return nil end
  local fields = found[2]
  if string.sub(stream, -5) ~= ':lane' then return fields[2], nil, 's' .. raw end
  local key = entries.key_of(fields)
  return fields[2], key, (key and 'k' or 'l') .. raw
end

-- Return true if one entry id comes before another. (Their milliseconds have 13 digits until the year 2286.)
function entries.before(a, b)
  if #a == #b or string.sub(a, 1, 13) ~= string.sub(b, 1, 13) then return a < b end
  return #a < #b
end

do
  local before = entries.before

  -- Return the ordering keys of these entries of keyed jobs, without the keys of removed entries. A worker usually
  -- claims the runs together that it settles together, so one range read finds most entries. It misses an entry if many
  -- runs of other workers lie between. The function reads each missed entry by its id.
  function entries.keys_of(stream, raw)
    local keys, found, first, last = {}, {}, raw[1], raw[1]
    if #raw > 1 then
      for _, entry in ipairs(raw) do
        if before(entry, first) then first = entry elseif before(last, entry) then last = entry end
      end
      for _, entry in ipairs(redis.call('XRANGE', stream, first, last, 'COUNT', #raw * 2)) do
        found[entry[1]] = entries.key_of(entry[2]) or false
      end
    end
    for _, entry in ipairs(raw) do
      if found[entry] == nil then found[entry] = select(2, entries.find(stream, entry)) or false end
      if found[entry] then keys[#keys + 1] = found[entry] end
      found[entry] = false         -- an entry that is named twice is released once
    end
    return keys
  end
end

-- Return the row of XPENDING of a running job { id, consumer, idle ms, deliveries }, or nil.
function entries.pending_row(stream, raw)
  local rows = redis.pcall('XPENDING', stream, GROUP, raw, raw, 1)
  return not rows.err and rows[1] or nil
end

-- Return the consumer under whose name a running job is pending, or nil.
function entries.consumer_of(base, entry)
  local row = entries.pending_row(entries.stream_of(base, entry))
  return row and row[2]
end

-- Return the number of pending entries. (The summary form of XPENDING would list every consumer.)
function entries.pending_count(stream)
  return entries.group_of(stream).pending or 0
end

function entries.ensure_group(stream)
  redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
end

-- Create the consumer group of `lane` if it does not exist. If it was destroyed, the entries of `lane` have lost their
-- leases, and only the call that creates the group can know that.
function entries.ensure_active_group(base)
  local lane = base .. ':lane'
  if redis.pcall('XGROUP', 'CREATE', lane, GROUP, '0', 'MKSTREAM').err then return end
  local last = redis.call('XREVRANGE', lane, '+', '-', 'COUNT', 1)[1]
  if last then redis.call('HSET', base .. ':meta', 'lane_lost', last[1]) end
end

-- Create the consumer group of `lane` again after it was destroyed. The pending list was destroyed with it, so no
-- worker has a lease of the jobs in the entries up to `last`. The sweep returns these jobs to the queue; see
-- stalled.lua.
function entries.restore_active_stream(base, last)
  entries.ensure_group(base .. ':lane')
  redis.call('HSET', base .. ':meta', 'lane_lost', last)
end
