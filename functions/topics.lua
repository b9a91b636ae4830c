-- topics: the messages of a topic. The base key is the one of the topic. feeds.lua is the part in the queues.
--   publishMessages  channel number most age unread n { subject key headers data }*n -> first entry
--     Append messages, at most MOST. Their entries follow each other: the same milliseconds and rising sequences.
--     most: the number of messages to keep, 0 = all; age: the ms for which they are kept, 0 = for ever; unread "1":
--     only until all subscriptions have read them. The last call decides for the topic.
--   joinTopic     name queue patterns start -> position
--     Register a subscription, or store its new queue and patterns. patterns: as for readMessages, joined by spaces.
--     start: where a new one begins, see locateMessages. Return its position. A repeated call has no second effect.
--   rewindTopic   channel number name start -> position epoch | {}
--     Let a subscription begin at another place, and keep its messages from there on. {}: it is not registered. The
--     caller moves the cursor in the queue afterwards, see feeds.lua.
--   leaveTopic    name -> 1 | 0     Forget a subscription; 0: it is not registered.
--   locateMessages  start -> position
--     start "now": after the last message; "beginning": before the oldest one; ms: before the first message of this
--     time or a later one; an entry: before it
--   readMessages  name entry n rows epoch pattern… -> { status, lost, position, total, rows }
--     rows: { entry n subject key data headers }*
--     Return the messages after a position. name: the subscription that has got all messages up to this position, ''
--     for a reader whose position is not stored. rows: the maximum number of messages. Messages that fit no pattern are
--     left out. position: of the last message that the call has looked at. lost: the number of messages that were
--     trimmed after the given position. status "unknown": no such subscription is registered, and the rest is empty.
--   describeTopic -> { total, first, last, length, most, age, unread, { name, packed }* }
--     first, last: the oldest entry, and the last one that was ever written, '0-0' without one
--   topic          stream  n s k d h: number from 1, subject, ordering key or '', data, headers; no h without headers.
--                         The entry is `<ms>-<sequence>`
--   topic_info     hash    last: the milliseconds of the newest entry; total: its number; most, age, unread
--   subscriptions  hash    name -> cmsgpack { queue, position, patterns, ms of the last read, epoch, target }
--     target: the position of the last rewind until a worker reads there. The messages after `position` are kept.
--     epoch: the number of rewinds. A worker that has not noticed the last one knows an older epoch, and its reads do
--     not change the position, which says what the topic must keep.
-- A position is an entry and its number: "<ms>-<sequence> <n>". Nothing is removed but the oldest messages, so the
-- numbers show how many a reader has missed.
-- A failover can lose the last messages, which a subscription in another cluster slot may have got already. Its
-- position is then after the end of the topic. Entries contain the time, so later messages have later entries than the
-- lost ones. A read also raises `last`, in case the clock of the new primary is behind.

local topics = {}
local MOST = 250
local TRIMMED = 500              -- messages that one call removes
local READ_AT_MOST, READ_BYTES, LOOKED_AT, STEP = 16, 262144, 500, 8
local FIRST = '0-0'

local function split(text, separator)
  local parts = {}
  for part in string.gmatch(text, '[^' .. separator .. ']+') do parts[#parts + 1] = part end
  return parts
end

-- Return the milliseconds and the sequence of an entry.
local function parts_of(entry)
  local ms, sequence = string.match(entry, '^(%d+)-(%d+)$')
  if not ms then fail('ARGUMENT', 'not an entry: ' .. entry) end
  return tonumber(ms), tonumber(sequence)
end

-- Return true if one entry comes before another one.
function topics.is_before(entry, other)
  local ms, sequence = parts_of(entry)
  local other_ms, other_sequence = parts_of(other)
  return ms < other_ms or (ms == other_ms and sequence < other_sequence)
end

-- Return true if the tokens of a subject fit a pattern: `*` is one token, a final `>` one or more.
local function fits(pattern, tokens)
  for i, token in ipairs(pattern) do
    if token == '>' then return tokens[i] ~= nil end
    if not tokens[i] or (token ~= '*' and token ~= tokens[i]) then return false end
  end
  return #pattern == #tokens
end

-- Return a function that returns true if a subject is wanted. It must fit one of the patterns, unless there are none.
-- It must not fit a pattern that begins with `!`.
local function filter_of(args, from)
  local wanted, refused, known = {}, {}, {}
  for i = from, #args do
    local out = string.sub(args[i], 1, 1) == '!'
    local list = out and refused or wanted
    list[#list + 1] = split(out and string.sub(args[i], 2) or args[i], '.')
  end
  local function any(list, tokens)
    for _, pattern in ipairs(list) do
      if fits(pattern, tokens) then return true end
    end
    return false
  end
  return function(subject)
    local found = known[subject]
    if found == nil then
      local tokens = split(subject, '.')
      found = (not wanted[1] or any(wanted, tokens)) and not any(refused, tokens)
      known[subject] = found
    end
    return found
  end
end

-- Remove the messages before an entry, or only the oldest ones if they are many. The exact removal changes one node of
-- the stream.
local function trim_before(key, entry)
  local removed = redis.call('XTRIM', key, 'MINID', '~', entry, 'LIMIT', TRIMMED * 2)
  if removed < TRIMMED then redis.call('XTRIM', key, 'MINID', entry) end
end

-- Return the first entry that some subscription has not read. name, entry: the new position of the subscription that
-- reads now; without an entry its stored one counts.
local function first_unread(base, name, entry)
  local flat, lowest = redis.call('HGETALL', base .. ':subscriptions'), entry
  for i = 1, #flat, 2 do
    local other = string.match(cmsgpack.unpack(flat[i + 1])[2], '^%S+')
    local counts = flat[i] ~= name or not entry
    if counts and (not lowest or topics.is_before(other, lowest)) then lowest = other end
  end
  local ms, sequence = parts_of(lowest)
  return digits(ms) .. '-' .. digits(sequence + 1)
end

-- Remove messages that need not be kept. most, age: as for publishMessages; unread: the first entry to keep, or nil.
local function trim(base, most, age, now, unread)
  local key = base .. ':topic'
  if most > 0 then
    local length = redis.call('XLEN', key)
    if length > most then redis.call('XTRIM', key, 'MAXLEN', digits(math.max(most, length - TRIMMED))) end
  end
  if age > 0 and now > age then trim_before(key, digits(now - age) .. '-0') end
  if unread then trim_before(key, unread) end
end

request.register('publishMessages', function(base, args)
  local most, age, n = integer('most', args[3]), integer('age', args[4]), integer('count', args[6])
  if n < 1 or n > MOST or #args ~= 6 + 4 * n then fail('ARGUMENT', 'the argument list does not hold its messages') end
  local info = redis.call('HMGET', base .. ':topic_info', 'last', 'total')
  local now, total, key, first = clock.now(), tonumber(info[2] or 0), base .. ':topic', nil
  local ms = digits(math.max(now, tonumber(info[1] or 0)))
  local last
  for i = 1, n do
    local at = 3 + 4 * i
    local fields = {'n', digits(total + i), 's', args[at], 'k', args[at + 1], 'd', args[at + 3]}
    if args[at + 2] ~= '' then fields[9], fields[10] = 'h', args[at + 2] end
    last = redis.call('XADD', key, ms .. '-*', unpack(fields))
    first = first or last
  end
  redis.call('HSET', base .. ':topic_info', 'last', ms, 'total', digits(total + n), 'most', digits(most), 'age',
    digits(age), 'unread', args[5])
  trim(base, most, age, now)
  redis.pcall('SPUBLISH', base .. ':published', last)
  return first
end)

-- Return the number of the oldest message, nil without one.
local function first_number(key)
  local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  return first and tonumber(first[2][2])
end

-- Return the last entry that was ever written.
local function last_entry(key)
  if not exists(key) then return FIRST end
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end

-- Return the position before the first message from an entry on.
local function before(key, entry, total)
  local first = redis.call('XRANGE', key, entry, '+', 'COUNT', 1)[1]
  if not first then return last_entry(key) .. ' ' .. digits(total) end
  local number = digits(first[2][2] - 1)
  -- The server would walk through the whole stream to find that no message is before the oldest one.
  if redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1][1] == first[1] then return FIRST .. ' ' .. number end
  return redis.call('XREVRANGE', key, '(' .. first[1], '-', 'COUNT', 1)[1][1] .. ' ' .. number
end

local function locate(base, start)
  local key, total = base .. ':topic', tonumber(redis.call('HGET', base .. ':topic_info', 'total') or 0)
  if start == 'now' then return last_entry(key) .. ' ' .. digits(total) end
  if start == 'beginning' then return FIRST .. ' ' .. digits((first_number(key) or total + 1) - 1) end
  if string.find(start, '^%d+$') then return before(key, start .. '-0', total) end
  parts_of(start)
  return before(key, start, total)
end

register('locateMessages', function(base, args)
  return locate(base, args[1])
end, {'no-writes'})

register('joinTopic', function(base, args)
  local key, name = base .. ':subscriptions', args[1]
  local known = redis.call('HGET', key, name)
  local row = known and cmsgpack.unpack(known)
  local position, now = known and row[2] or locate(base, args[4]), clock.now()
  local epoch, target = row and row[5] or 0, row and row[6] or ''
  redis.call('HSET', key, name, cmsgpack.pack({args[2], position, args[3], now, epoch, target}))
  return target ~= '' and target or position
end)

request.register('rewindTopic', function(base, args)
  local key, name = base .. ':subscriptions', args[3]
  local known = redis.call('HGET', key, name)
  if not known then return {} end
  local row, position = cmsgpack.unpack(known), locate(base, args[4])
  local entry = string.match(position, '^%S+')
  if topics.is_before(entry, string.match(row[2], '^%S+')) then row[2] = position end
  row[5], row[6] = row[5] + 1, position
  redis.call('HSET', key, name, cmsgpack.pack(row))
  return {position, row[5]}
end)

register('leaveTopic', function(base, args)
  return redis.call('HDEL', base .. ':subscriptions', args[1])
end, {'allow-oom'})

-- Look at the messages after an entry. Return up to `rows` wanted ones, the entry and the number of the last message
-- that was looked at, the number of trimmed messages after the position, and true if no message is there.
local function look(key, after, number, rows, is_wanted)
  local call_budget, found, entry, seen, lost, step = budget.of_answer(), {}, after, 0, 0, 1
  local n = number
  repeat
    local messages = redis.call('XRANGE', key, '(' .. entry, '+', 'COUNT', step)
    for _, one in ipairs(messages) do
      local fields = one[2]
      local own = tonumber(fields[2])
      if seen == 0 then lost = math.max(0, own - n - 1) end
      entry, n, seen = one[1], own, seen + 1
      call_budget.bytes = call_budget.bytes + #fields[8]
      if is_wanted(fields[4]) then
        found[#found + 1] = {entry, own, fields[4], fields[6], fields[8], fields[10] or ''}
      end
      if #found == rows or call_budget.bytes >= call_budget.most then return found, entry, n, lost end
      if seen % STEP == 0 and budget.is_spent(call_budget) then return found, entry, n, lost end
    end
    local is_last = #messages < step
    -- A message can be large, so the next step is as long as messages of the size so far permit.
    step = math.max(1, math.min(2 * step, READ_AT_MOST, math.floor(READ_BYTES * seen / (call_budget.bytes + 1))))
  until is_last or seen >= LOOKED_AT
  return found, entry, n, lost, seen == 0
end

register('readMessages', function(base, args)
  local name, entry, number, rows = args[1], args[2], integer('number', args[3]), integer('rows', args[4])
  local epoch, ms = integer('epoch', args[5]), parts_of(entry)
  local key, names = base .. ':topic', base .. ':subscriptions'
  local known, now = name ~= '' and redis.call('HGET', names, name), clock.now()
  if name ~= '' and not known then return {'unknown', 0, '', 0, {}} end
  local info = redis.call('HMGET', base .. ':topic_info', 'last', 'total', 'most', 'age', 'unread')
  local total = tonumber(info[2] or 0)
  local row = known and cmsgpack.unpack(known)
  local unread = row and info[5] == '1' and first_unread(base, name, epoch >= row[5] and entry or nil) or nil
  local found, last, n, lost, is_end = look(key, entry, number, rows, filter_of(args, 6))
  -- Nothing is left after the position: all later messages are gone, or a failover has lost them.
  if is_end then
    lost, n = math.max(0, total - number), total
    if lost > 0 then last = last_entry(key) end
  end
  if row then
    if epoch >= row[5] then row[2], row[6] = entry .. ' ' .. digits(number), '' end
    row[4] = now
    redis.call('HSET', names, name, cmsgpack.pack(row))
  end
  if info[2] and ms > tonumber(info[1]) then redis.call('HSET', base .. ':topic_info', 'last', digits(ms + 1)) end
  trim(base, tonumber(info[3] or 0), tonumber(info[4] or 0), now, unread)
  return {'ok', lost, last .. ' ' .. digits(n), total, found}
end)

register('describeTopic', function(base)
  local key = base .. ':topic'
  local info = redis.call('HMGET', base .. ':topic_info', 'total', 'most', 'age', 'unread')
  local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  return {tonumber(info[1] or 0), first and first[1] or FIRST, last_entry(key), redis.call('XLEN', key),
    tonumber(info[2] or 0), tonumber(info[3] or 0), info[4] or '0', redis.call('HGETALL', base .. ':subscriptions')}
end, {'no-writes'})
