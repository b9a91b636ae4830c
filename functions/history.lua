-- history: finds positions in the events, and stores how far readers have come and which events they missed.
--   locateEvents  { kind value }… -> { incarnation, total, first, seq, last, { entry, seq }… }
--     incarnation '' without an open queue; total: events ever written; first, seq: the oldest entry, and the number of
--     its first event ('' and total without one); last: the newest entry, '0-0' without one
--     kind 'n': the entry that contains the event of this number, or the oldest entry if that is younger
--     kind 't': the first entry of this time (ms) or a later one      kind 'i': the first entry from this id on
--     Each result is the entry and the number of its first event, '' and total when there is none.
--   noteReader    name incarnation n hold -> "ok"      a reader has processed all events before number n; hold "1":
--                 later events are kept longer for it, see events.lua
--   noteLoss      name why incarnation from stop -> "ok"    events that a reader missed; stop '' = the number is
--                 unknown
--   listReaders   -> { { name, incarnation, n, ms }… }
--   listLosses    -> { { ms, name, why, incarnation, from, stop }… }    the oldest first
-- Results contain no position of another incarnation and no note of a queue that was deleted. A repeated note changes
-- nothing. If two losses of one reader begin at the same event, the longer one remains.
--   positions  hash  reader -> incarnation SEP n SEP ms SEP hold; of at most 1,000 readers, without readers that were
--              silent for a week when events are trimmed
--   losses     zset  name SEP why SEP incarnation SEP from SEP stop, by the time of the note; the last 1,000

local KEPT_LOSSES = 1000
local MOST_READERS = 1000

local function split(text)
  local parts = {}
  for part in string.gmatch(text .. SEP, '([^' .. SEP .. ']*)' .. SEP) do parts[#parts + 1] = part end
  return parts
end

local locate = {}

function locate.n(key, value)
  return events.entry_of(key, integer('number', value))
end

function locate.t(key, value)
  return events.first_from(key, digits(integer('time', value)) .. '-0')
end

function locate.i(key, value)
  return events.first_from(key, value)
end

register('locateEvents', function(base, args)
  local key = base .. ':events'
  local meta = redis.call('HMGET', base .. ':meta2', 'incarnation', 'events')
  local total = tonumber(meta[2] or 0)
  local first, seq = events.first_from(key, '-')
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local answer = {meta[1] or '', total, first or '', seq or total, last and last[1] or '0-0'}
  for i = 1, #args, 2 do
    local find = locate[args[i]]
    if not find then fail('ARGUMENT', 'unknown kind ' .. args[i]) end
    local entry, number = find(key, args[i + 1])
    answer[#answer + 1] = {entry or '', number or total}
  end
  return answer
end, {'no-writes'})

-- Remove the reader that was silent for the longest time.
local function forget_oldest(key)
  local flat, oldest, since = redis.call('HGETALL', key), nil, math.huge
  for i = 1, #flat, 2 do
    local ms = tonumber(string.match(flat[i + 1], SEP .. '(%d+)' .. SEP .. '[^' .. SEP .. ']*$') or 0)
    if ms < since then oldest, since = flat[i], ms end
  end
  redis.call('HDEL', key, oldest)
end

register('noteReader', function(base, args)
  local name, mark, n, hold = args[1], args[2], integer('number', args[3]), args[4]
  if redis.call('HGET', base .. ':meta2', 'incarnation') ~= mark then return 'ok' end
  local key = base .. ':positions'
  local new = redis.call('HSET', key, name, table.concat({mark, digits(n), digits(clock.now()), hold}, SEP)) == 1
  if new and redis.call('HLEN', key) > MOST_READERS then forget_oldest(key) end
  return 'ok'
end, {'allow-oom'})

register('noteLoss', function(base, args)
  if not exists(base .. ':meta2') then return 'ok' end
  local key, stop = base .. ':losses', tonumber(args[5]) or math.huge
  local own = args[1] .. SEP
  for _, noted in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local parts = string.sub(noted, 1, #own) == own and split(noted) or {}
    if parts[1] == args[1] and parts[3] == args[3] and parts[4] == args[4] then
      if (tonumber(parts[5]) or math.huge) >= stop then return 'ok' end
      redis.call('ZREM', key, noted)   -- events were trimmed further before the batch was read again
    end
  end
  redis.call('ZADD', key, digits(clock.now()), table.concat(args, SEP))
  redis.call('ZREMRANGEBYRANK', key, 0, -KEPT_LOSSES - 1)
  return 'ok'
end, {'allow-oom'})

register('listReaders', function(base)
  local flat, rows = redis.call('HGETALL', base .. ':positions'), {}
  for i = 1, #flat, 2 do
    local parts = split(flat[i + 1])
    rows[#rows + 1] = {flat[i], parts[1], tonumber(parts[2]), tonumber(parts[3])}
  end
  return rows
end, {'no-writes'})

register('listLosses', function(base)
  local flat, rows = redis.call('ZRANGE', base .. ':losses', 0, -1, 'WITHSCORES'), {}
  for i = 1, #flat, 2 do rows[#rows + 1] = {tonumber(flat[i + 1]), unpack(split(flat[i]))} end
  return rows
end, {'no-writes'})
