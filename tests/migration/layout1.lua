#!lua name=glidemq_async_v1
-- The function library of layout 1 (version 1.1.0, commit 6a783e8), without its comments.
local VERSION = '1.1.0'
local GROUP = 'workers'          -- the one consumer group of `stream` and `lane`
local SEP = '\31'                -- unit separator: ids and names never hold control characters
local RS = '\30'                 -- record separator, between the parts of one detail
local function fail(code, text)
  return error({err = 'GLIDEMQ ' .. code .. ' ' .. text})
end
local clock = {}
function clock.now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000), t[2] % 1000
end
clock.SLACK_MS = 1000
function clock.is_ahead(instant, now)
  return instant > now + clock.SLACK_MS
end
local function integer(name, text)
  local n = tonumber(text)
  if not n or n ~= math.floor(n) then
    fail('ARGUMENT', name .. ' must be an integer, found ' .. tostring(text))
  end
  return n
end
local digits, counting, three_digits
do
  local small, tails = {}, {}    -- texts of the numbers 0 to 999, each stored when it is first used
  function digits(n)
    local text = small[n]
    if text then return text end
    text = string.format('%d', n)
    if #text < 4 then small[n] = text end
    return text
  end
  function three_digits(n)
    local tail = tails[n]
    if not tail then
      tail = string.format('%03d', n)
      tails[n] = tail
    end
    return tail
  end
  function counting()
    local high, head
    return function(n)
      if n < 1000 then return digits(n) end
      local low = n % 1000
      local wanted = n - low
      if wanted ~= high then high, head = wanted, digits(wanted / 1000) end
      return head .. three_digits(low)
    end
  end
end
local CHUNK = 900
local function in_chunks(command, key, head, values)
  local total, n = 0, #values
  for from = 1, n, CHUNK do
    local last = math.min(from + CHUNK - 1, n)
    local reply
    if head then
      reply = redis.call(command, key, head, unpack(values, from, last))
    elseif key then
      reply = redis.call(command, key, unpack(values, from, last))
    else
      reply = redis.call(command, unpack(values, from, last))
    end
    total = total + reply
  end
  return total
end
local WIDENER = SEP .. '--------------------------------------------------------------------------------'
local MANY = 8                   -- from this many members on, converting costs less than walking the list
local function exists(key)
  return redis.call('EXISTS', key) == 1
end
local function register(name, callback, flags)
  redis.register_function{
    function_name = 'glidemq_async_v1_' .. name,
    callback = function(keys, args) return callback(keys[1], args) end,
    flags = flags or {},
  }
end
local budget
do
budget = {}
local ENOUGH = 0.002
local SETTLED, CLAIMED, ADDED = 0.001, 0.002, 0.002
local HEAVY = 8388608
local ANSWER = 524288
local CLAIMED_BYTES = 1048576
do
  local asked_for_clock, processor_time
  local function seconds()
    if not asked_for_clock then
      asked_for_clock = true
      local there, found = pcall(function() return os.clock end)
      processor_time = there and found
    end
    if processor_time then return processor_time() end
    local t = redis.call('TIME')
    return t[1] + t[2] / 1000000
  end
  function budget.new(most)
    return {began = seconds(), bytes = 0, most = most or HEAVY}
  end
  function budget.of_claim(is_small)
    return {began = not is_small and seconds() or nil, bytes = 0, most = CLAIMED_BYTES}
  end
  local function has_lasted(it, limit)
    local now = seconds()
    if not it.began then it.began = now end
    return now - it.began >= limit
  end
  function budget.of_answer()
    return budget.new(ANSWER)
  end
  function budget.is_spent(it)
    return it.bytes >= it.most or seconds() - it.began >= ENOUGH
  end
  function budget.has_added_enough(it)
    return has_lasted(it, ADDED)
  end
  function budget.has_settled_enough(it)
    return has_lasted(it, SETTLED)
  end
  function budget.has_claimed_enough(it)
    it.spent = it.spent or it.bytes >= it.most or has_lasted(it, CLAIMED)
    return it.spent
  end
  function budget.count_record(it, flat)
    local bytes = it.bytes
    for i = 2, #flat, 2 do bytes = bytes + #flat[i] end
    it.bytes = bytes
  end
end
end
local access
do
access = {}
local COMMANDS = {
  'EXISTS k', 'GET k', 'HDEL k f', 'HEXISTS k f', 'HGET k f', 'HGETALL k', 'HINCRBY k f 1', 'HMGET k f',
  'HSET k f v', 'HSETNX k f v', 'HSTRLEN k f', 'HLEN k', 'INCR k', 'INCRBY k 1', 'LLEN k', 'LRANGE k 0 0',
  'LTRIM k 0 0', 'MEMORY USAGE k', 'PEXPIRE k 1', 'RPUSH k v', 'SADD k v', 'SET k v', 'SISMEMBER k v',
  'SMISMEMBER k v', 'SSCAN k 0', 'SREM k v', 'TIME', 'TYPE k', 'UNLINK k', 'XACK k g 0-1', 'XADD k * f v',
  'XCLAIM k g c 0 0-1', 'XDEL k 0-1', 'XGROUP CREATE k g 0', 'XGROUP DELCONSUMER k g c', 'XINFO GROUPS k',
  'XINFO STREAM k', 'XLEN k', 'XPENDING k g', 'XRANGE k - +', 'XREADGROUP GROUP g c STREAMS k >',
  'XREVRANGE k + -', 'XTRIM k MAXLEN 0', 'ZADD k 0 v', 'ZCARD k', 'ZCOUNT k 0 0', 'ZMSCORE k v', 'ZPOPMAX k',
  'ZPOPMIN k', 'ZRANGE k 0 0', 'ZRANGEBYSCORE k 0 0', 'ZRANK k v', 'ZREM k v', 'ZREMRANGEBYRANK k 0 0',
  'ZREMRANGEBYSCORE k 0 0', 'ZREVRANGE k 0 0', 'ZREVRANK k v', 'ZSCAN k 0', 'ZSCORE k v'
}
local CONTAINERS = {MEMORY = true, XGROUP = true, XINFO = true}
local function allowed(arguments)
  local known, answer = pcall(redis.acl_check_cmd, unpack(arguments))
  return not known or answer
end
local function rule_of(arguments)
  return '+' .. string.lower(arguments[1] .. (CONTAINERS[arguments[1]] and '|' .. arguments[2] or ''))
end
local function missing_commands(key)
  local rules, with_key = {}, 0
  for _, line in ipairs(COMMANDS) do
    local arguments, keyed = {}, false
    for argument in string.gmatch(line, '%S+') do
      keyed = keyed or argument == 'k'
      arguments[#arguments + 1] = argument == 'k' and key or argument
    end
    if keyed then with_key = with_key + 1 end
    if not allowed(arguments) then rules[#rules + 1] = rule_of(arguments) end
  end
  return rules, #rules == with_key and allowed({'TIME'})
end
local function missing_channels(base)
  local rules, channel = {}, base .. ':wake:'
  if not allowed({'SPUBLISH', channel, ''}) then rules[1] = '+spublish' end
  if not allowed({'SSUBSCRIBE', channel}) then rules[#rules + 1] = '+ssubscribe' end
  if rules[2] then rules = {'&' .. string.match(base, '^[^{]*') .. '*'} end
  return rules
end
function access.check(base)
  if not redis.acl_check_cmd then return {} end
  local rules, only_keys = missing_commands(base .. ':meta')
  if only_keys then rules = {'~' .. string.match(base, '^[^{]*') .. '*'} end
  if rules[1] then fail('ACCESS', table.concat(rules, ' ')) end
  return missing_channels(base)
end
end
local request
do
request = {}
local KEEP_MS = '600000'         -- text, so that calls need not format a number
request.WEEK_MS = '604800000'    -- longer than the longest lease, which is a day
function request.replay(base, channel, number)
  local kept = redis.call('GET', base .. ':call:' .. channel)
  if not kept then return nil, number == '1' end
  local at = string.find(kept, ' ', 1, true)
  local last = string.sub(kept, 1, at - 1)
  if last == number then return cmsgpack.unpack(string.sub(kept, at + 1)) end
  local ahead = number - last
  if ahead < 0 then
    fail('REPLAY', 'call ' .. number .. ' of request channel ' .. channel .. ' is older than its last call ' .. last)
  end
  return nil, ahead == 1
end
function request.remember(base, channel, number, answer, keep_ms)
  redis.call('SET', base .. ':call:' .. channel, number .. ' ' .. cmsgpack.pack(answer), 'PX', keep_ms or KEEP_MS)
  return answer
end
function request.leave(base, channel)
  redis.call('PEXPIRE', base .. ':call:' .. channel, KEEP_MS)
end
function request.register(name, callback, flags)
  register(name, function(base, args)
    local channel, number = args[1], args[2]
    integer('request number', number)
    local kept = request.replay(base, channel, number)
    if kept ~= nil then return kept end
    return request.remember(base, channel, number, callback(base, args))
  end, flags)
end
end
local incarnation
do
incarnation = {}
function incarnation.check(known, found)
  if known and known ~= '' and known ~= found then
    fail('UNDECLARED', 'this queue is not the one that the caller opened')
  end
end
end
local queue_flags
do
queue_flags = {}
local STRUCTURES = {'waiters', 'held', 'expiry', 'revoking', 'returned', 'scheduled', 'lifo', 'prioritized', 'ready',
  'sleeping', 'resting', 'pauses', 'limits', 'deduped', 'timer', 'outbox', 'moved',
  'running'}
local ALL = 'abcdefghijklmnopqr'
local FIRST_LETTER = 97
local function letter_of(name)
  for i, each in ipairs(STRUCTURES) do
    if each == name then return string.sub(ALL, i, i) end
  end
end
local compared, n_compared = {}, 0
local MOST_COMPARED = 10000      -- the table starts anew with more queues, because the memory of Lua is limited
local last_base, last_letters, last_names, last_keys
local function flagged(base, letters)
  if base ~= last_base or letters ~= last_letters then
    local names, keys = {}, {}
    for i = 1, #letters do
      local name = STRUCTURES[string.byte(letters, i) - FIRST_LETTER + 1]
      if name then names[#names + 1], keys[#keys + 1] = name, base .. ':' .. name end
    end
    last_base, last_letters, last_names, last_keys = base, letters, names, keys
  end
  return last_names, last_keys
end
local function look(names, keys, from, last, seen)
  if from > last then return end
  local count = redis.call('EXISTS', unpack(keys, from, last))
  if count == 0 then return end
  if count == last - from + 1 then
    for i = from, last do seen[names[i]] = true end
    return
  end
  local middle = math.floor((from + last) / 2)
  look(names, keys, from, middle, seen)
  look(names, keys, middle + 1, last, seen)
end
local function look_up(base, letters, seen)
  local names, keys = flagged(base, letters)
  look(names, keys, 1, #keys, seen)
end
function queue_flags.at(base)
  local meta = redis.call('HMGET', base .. ':meta', 'paused', 'keep_completed', 'keep_failed', 'touched',
    'dead_letter', 'turn', 'incarnation', 'key_limits', 'lane_lost', 'features', 'logs', 'shortest_lease')
  local features = meta[10]
  local seen = {paused = meta[1] == '1', touched = meta[4] == '1', turn = tonumber(meta[6] or 0),
    dead_letter = meta[5] and meta[5] ~= '' and meta[5] or nil, incarnation = meta[7],
    limited = meta[8] == '1', lane_lost = meta[9] and true, keep = {completed = meta[2] or '', failed = meta[3] or ''},
    features = features, logs = meta[11] and true, shortest_lease = tonumber(meta[12] or nil)}
  local letters = features and compared[base] and features or ALL
  if letters ~= '' then look_up(base, letters, seen) end
  return seen
end
function queue_flags.create(base, name, seen)
  local key = base .. ':' .. name
  if seen and seen[name] then return key end
  local features, letter = seen and seen.features, letter_of(name)
  if features == nil then features = redis.call('HGET', base .. ':meta', 'features') end
  if features and not string.find(features, letter, 1, true) then
    features = features .. letter
    redis.call('HSET', base .. ':meta', 'features', features)
  end
  if seen then seen[name], seen.features = true, features end
  return key
end
function queue_flags.missing(base)
  local features, found, missing = redis.call('HGET', base .. ':meta', 'features'), {}, {}
  if not features then return missing end
  look_up(base, ALL, found)
  for _, name in ipairs(STRUCTURES) do
    if found[name] and not string.find(features, letter_of(name), 1, true) then missing[#missing + 1] = name end
  end
  return missing
end
function queue_flags.compare(base)
  local found, letters, key = {}, '', base .. ':meta'
  look_up(base, ALL, found)
  for _, name in ipairs(STRUCTURES) do
    if found[name] then letters = letters .. letter_of(name) end
  end
  if redis.call('HGET', key, 'features') ~= letters then redis.call('HSET', key, 'features', letters) end
  if compared[base] then return end
  if n_compared == MOST_COMPARED then compared, n_compared = {}, 0 end
  compared[base], n_compared = true, n_compared + 1
end
function queue_flags.call(base)
  local now, past = clock.now()
  return {now = now, past = past, seen = queue_flags.at(base), lines = {}, startable = 0}
end
end
local order
do
order = {}
local PER_CALL = 1000            -- the last three digits
local FIRST = 1e12               -- from here on, the first 13 digits of the numbers
function order.next(base, call)
  local nth = call.nth
  if not nth or nth == PER_CALL then
    call.block, nth = digits(FIRST + redis.call('INCR', base .. ':sequence')), 0
  end
  call.nth = nth + 1
  return call.block .. three_digits(nth)
end
end
local events
do
events = {}
local MAX_EVENTS = 100000
local MAX_BYTES = 16 * 1024 * 1024
local CHECK_EVENTS = 1024          -- number of events between two checks of the caps
local LARGE = 65536                -- size in bytes of an entry that causes a check too
local HELD = 4                     -- a reader that holds events keeps at most this multiple of the caps
local FORGET_MS = 604800000        -- a reader that was silent for a week holds nothing any more
local DETAIL = {added = true, failed = true, ['dead-lettered'] = true, retrying = true, stalled = true, waiting = true,
  removed = true, dropped = true, limited = true, changed = true, duplicate = true, ['key-paused'] = true,
  ['key-resumed'] = true, drained = true, cleaned = true, obliterated = true, skipped = true,
  written = true}
local KINDS = {'paused', 'resumed', 'key-paused', 'key-resumed', 'skipped', 'added', 'duplicate', 'delayed', 'stalled',
  'waiting', 'completed', 'failed', 'dead-lettered', 'retrying', 'returned', 'limited', 'revoking', 'changed', 'active',
  'progress', 'updated', 'removed', 'dropped', 'drained', 'cleaned', 'written', 'obliterated'}
function events.line(lines, kind)
  local line = lines[kind]
  if not line then
    line = {kind}
    lines[kind] = line
  end
  return line
end
function events.note(lines, kind, id, detail)
  local line = events.line(lines, kind)
  local n = #line
  line[n + 1] = id
  if DETAIL[kind] then line[n + 2] = detail or '' end
end
function events.first_from(key, id)
  local found = redis.call('XRANGE', key, id, '+', 'COUNT', 1)[1]
  if found then return found[1], tonumber(found[2][2]) end
end
do
  local function highest(key, low, high, id_of, part, seq)
    while low < high do
      local middle = math.ceil((low + high) / 2)
      local entry, number = events.first_from(key, id_of(middle))
      local found = entry and number <= seq and part(entry)
      if found and found <= high then low = math.max(found, middle) else high = middle - 1 end
    end
    return low
  end
  local function ms_of(entry) return tonumber(string.match(entry, '^%d+')) end
  local function number_of(entry) return tonumber(string.match(entry, '%d+$')) end
  function events.entry_of(key, seq)
    local first, number = events.first_from(key, '-')
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    if not first or seq >= last[2][2] + last[2][4] then return nil end
    if seq < number then return first, number end
    local ms = highest(key, ms_of(first), ms_of(last[1]), digits, ms_of, seq)
    local text = digits(ms)
    local from = number_of(events.first_from(key, text .. '-0'))
    local newest = number_of(redis.call('XREVRANGE', key, text, '-', 'COUNT', 1)[1][1])
    local function id_of(n) return text .. '-' .. digits(n) end
    local function within(entry) return ms_of(entry) == ms and number_of(entry) or nil end
    return events.first_from(key, id_of(highest(key, from, newest, id_of, within, seq)))
  end
end
local function first_held(base, now)
  local first, gone, key = nil, {}, base .. ':positions'
  local flat = redis.call('HGETALL', key)
  for i = 2, #flat, 2 do
    local n, ms, hold = string.match(flat[i], '^[^' .. SEP .. ']*' .. SEP .. '(%d+)' .. SEP .. '(%d+)' .. SEP .. '(.?)')
    if not ms or now - ms > FORGET_MS then
      gone[#gone + 1] = flat[i - 1]
    elseif hold == '1' then
      first = math.min(first or math.huge, tonumber(n))
    end
  end
  if gone[1] then in_chunks('HDEL', key, nil, gone) end
  return first
end
local function trim(base, key, total, now)
  local _, oldest = events.first_from(key, '-')
  if not oldest then return end
  local bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
  local over = math.max((total - oldest) / MAX_EVENTS, bytes / MAX_BYTES)
  if over <= 1 then return end
  local held = first_held(base, now)
  if not held then
    redis.call('XTRIM', key, 'MAXLEN', math.max(1, math.floor(redis.call('XLEN', key) / over)))
    return
  end
  local surplus = total - oldest
  local wanted, forced = total - surplus / over, total - surplus / over * HELD
  local entry = events.entry_of(key, math.floor(math.max(math.min(wanted, held), forced)))
  if entry then redis.call('XTRIM', key, 'MINID', entry) end
end
local function joined(lines)
  local kind = next(lines)
  if next(lines, kind) == nil then
    return table.concat(lines[kind], SEP), (#lines[kind] - 1) / (DETAIL[kind] and 2 or 1)
  end
  local texts, n = {}, 0
  for _, kind in ipairs(KINDS) do
    local line = lines[kind]
    if line then
      texts[#texts + 1] = table.concat(line, SEP)
      n = n + (#line - 1) / (DETAIL[kind] and 2 or 1)
    end
  end
  return table.concat(texts, '\n'), n
end
function events.write(base, lines, now)
  if not next(lines) then return end
  local text, n = joined(lines)
  local key = base .. ':events'
  local total = redis.call('HINCRBY', base .. ':meta', 'events', digits(n))
  redis.call('XADD', key, '*', 'seq', digits(total - n), 'n', digits(n), 't', digits(now), 'e', text)
  if total % CHECK_EVENTS < n or #text > LARGE then trim(base, key, total, now) end
end
function events.one(base, kind, id, detail, now)
  local lines = {}
  events.note(lines, kind, id, detail)
  events.write(base, lines, now)
end
end
local dedup
do
dedup = {}
local KEPT_LONGER_MS = 60000
local SCHEDULER = 31              -- SEP
local function parse(text, now)
  local ends, taken, rest = string.match(text, '^(%d+)%-?(%d*) (.*)$')
  if taken ~= '' and clock.is_ahead(tonumber(taken), now) then return now, rest end
  return tonumber(ends), rest
end
local function window(ends, call)
  return ends == 0 and '0' or digits(ends) .. '-' .. digits(call.now)
end
local function kept(base, d, now)
  local text = redis.call('GET', base .. ':dedup:' .. d)
  if not text then return nil end
  local ends, rest = parse(text, now)
  local owner, successor = string.match(rest, '^([^\31]*)\31?(.*)$')
  return ends, owner, successor ~= '' and successor or nil
end
local function pass_on(base, d, successor, call)
  local key = base .. ':dedup:' .. d
  if successor and dedup.start_next(base, successor, call) then
    redis.call('SET', key, '0 ' .. successor)
  else
    redis.call('UNLINK', key)
  end
end
function dedup.forget(base, ids, call)
  local marks, owned = base .. ':deduped', {}
  for _, id in ipairs(ids) do
    local d = redis.call('HGET', marks, id)
    if d then
      redis.call('HDEL', marks, id)
      local _, owner, successor = kept(base, d, call.now)
      if string.byte(d) == SCHEDULER then
        dedup.reschedule(base, string.sub(d, 2), id, call)
      elseif owner == id and successor then
        owned[#owned + 1] = d
      elseif owner == id then
        redis.call('UNLINK', base .. ':dedup:' .. d)
      elseif successor == id then
        redis.call('SET', base .. ':dedup:' .. d, '0 ' .. owner)
      end
    end
  end
  for _, d in ipairs(owned) do
    local _, _, successor = kept(base, d, call.now)
    pass_on(base, d, successor, call)
  end
end
function dedup.owner(base, wanted, now)
  local ends, owner, successor = kept(base, wanted.id, now)
  if not ends or (ends ~= 0 and ends <= now) then return nil end
  return owner, successor
end
local function mark(base, d, id, call)
  redis.call('HSET', queue_flags.create(base, 'deduped', call.seen), id, d)
end
local function take(base, d, ends, id, call)
  local key = base .. ':dedup:' .. d
  local before = redis.call('SET', key, window(ends, call) .. ' ' .. id, 'GET')
  local successor = before and string.match(before, '\31(.*)$')
  if successor then
    redis.call('HDEL', base .. ':deduped', successor)
    dedup.start_next(base, successor, call)
  end
  if ends ~= 0 then redis.call('PEXPIRE', key, digits(ends - call.now + KEPT_LONGER_MS)) end
end
function dedup.own(base, wanted, id, call)
  local ends = wanted.ttl and wanted.mode ~= 'debounce' and call.now + wanted.ttl or 0
  take(base, wanted.id, ends, id, call)
  if wanted.mode == 'throttle' then return nil end
  mark(base, wanted.id, id, call)
  return window(ends, call) .. ' ' .. wanted.id
end
function dedup.follow(base, d, owner, id, call)
  redis.call('SET', base .. ':dedup:' .. d, '0 ' .. owner .. SEP .. id)
  mark(base, d, owner, call)
  mark(base, d, id, call)
  return '0 ' .. d
end
function dedup.own_again(base, id, call)
  local text = redis.call('HGET', base .. ':job:' .. id, 'dedup')
  if not text then return end
  local ends, d = parse(text, call.now)
  if (ends ~= 0 and ends <= call.now) or dedup.owner(base, {id = d}, call.now) then return end
  take(base, d, ends, id, call)
  mark(base, d, id, call)
end
function dedup.release(base, d, call)
  local ends, owner, successor = kept(base, d, call.now)
  if not ends then return false end
  redis.call('UNLINK', base .. ':dedup:' .. d)
  redis.call('HDEL', base .. ':deduped', owner, successor or owner)
  if successor then dedup.start_next(base, successor, call) end
  return ends == 0 or ends > call.now
end
end
local record
do
record = {}
function record.key(base, id)
  return base .. ':job:' .. id
end
function record.location(base, id)
  local location = redis.call('HGET', base .. ':job:' .. id, 'place')
  if not location then return nil end
  local at = string.find(location, ' ', 1, true)
  return string.sub(location, 1, at - 1), string.sub(location, at + 1)
end
function record.has_started(base, id)
  local last = redis.call('HGET', base .. ':job:' .. id, 'claim')
  return last and last ~= '0 0 0'
end
function record.keep_added(base, id, entry)
  if string.sub(entry, 1, 1) == 's' then
    redis.call('HSETNX', base .. ':job:' .. id, 'added', string.match(entry, '^s(%d+)-'))
  end
end
local function unlink_all(prefix, ids)
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = prefix .. id end
  in_chunks('UNLINK', nil, nil, keys)
end
function record.unlink(base, ids, seen)
  if #ids == 0 then return end
  unlink_all(base .. ':job:', ids)
  local logs = seen and seen.logs
  if logs == nil then logs = redis.call('HEXISTS', base .. ':meta', 'logs') == 1 end
  if logs then unlink_all(base .. ':logs:', ids) end
end
function record.forget_marks(base, ids, call)
  local seen = call.seen
  if seen.expiry then in_chunks('ZREM', base .. ':expiry', nil, ids) end
  if seen.revoking then in_chunks('SREM', base .. ':revoking', nil, ids) end
  if seen.moved then in_chunks('ZREM', base .. ':moved', nil, ids) end
  if seen.deduped then dedup.forget(base, ids, call) end
end
function record.lost(base, id, call)
  redis.call('ZREM', base .. ':expiry', id)
  redis.call('SREM', base .. ':revoking', id)
  redis.call('ZREM', base .. ':moved', id)
  redis.call('HDEL', base .. ':waiters', id)
  dedup.forget(base, {id}, call)
  redis.call('UNLINK', base .. ':logs:' .. id)
end
end
local entries
do
entries = {few = 4}
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
function entries.acknowledge(stream, raw)
  return #raw > 0 and in_chunks('XACK', stream, GROUP, raw) or 0
end
function entries.delete(stream, raw)
  if #raw > 0 then in_chunks('XDEL', stream, nil, raw) end
end
do
  local function first_open(stream)
    local rows = redis.pcall('XPENDING', stream, GROUP, '-', '+', '1')
    if rows.err then return nil end
    if rows[1] then return rows[1][1] end
    local last = entries.group_of(stream)['last-delivered-id']
    local ms, number = string.match(last or '', '^(%d+)%-(%d+)$')
    return ms and ms .. '-' .. digits(number + 1)
  end
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
function entries.key_of(fields)
  local field = fields[1]
  return string.sub(field, 1, 1) == 'k' and string.sub(field, 2) or nil
end
function entries.find(stream, raw)
  local found = redis.call('XRANGE', stream, raw, raw)[1]
  if not found then return nil end
  local fields = found[2]
  if string.sub(stream, -5) ~= ':lane' then return fields[2], nil, 's' .. raw end
  local key = entries.key_of(fields)
  return fields[2], key, (key and 'k' or 'l') .. raw
end
function entries.before(a, b)
  if #a == #b or string.sub(a, 1, 13) ~= string.sub(b, 1, 13) then return a < b end
  return #a < #b
end
do
  local before = entries.before
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
function entries.pending_row(stream, raw)
  local rows = redis.pcall('XPENDING', stream, GROUP, raw, raw, 1)
  return not rows.err and rows[1] or nil
end
function entries.consumer_of(base, entry)
  local row = entries.pending_row(entries.stream_of(base, entry))
  return row and row[2]
end
function entries.pending_count(stream)
  return entries.group_of(stream).pending or 0
end
function entries.ensure_group(stream)
  redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
end
function entries.ensure_active_group(base)
  local lane = base .. ':lane'
  if redis.pcall('XGROUP', 'CREATE', lane, GROUP, '0', 'MKSTREAM').err then return end
  local last = redis.call('XREVRANGE', lane, '+', '-', 'COUNT', 1)[1]
  if last then redis.call('HSET', base .. ':meta', 'lane_lost', last[1]) end
end
function entries.restore_active_stream(base, last)
  entries.ensure_group(base .. ':lane')
  redis.call('HSET', base .. ':meta', 'lane_lost', last)
end
end
local limits
do
limits = {}
local KEPT = {queue = 1000, key = 50}
local KEPT_MS = 86400000
local MOST_FORGOTTEN = 2000      -- per call; a call starts at most 1,000
local LONGEST_MS = 1e14    -- maximum length of a rate's window; servers accept no much later instant
function limits.window(key, max, length, now, kept)
  local before = redis.call('ZCOUNT', key, '-inf', digits(now - length))
  local started, ahead = redis.call('ZCARD', key) - before, 0
  local over = before - (kept or KEPT.key)
  if over > 100 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(over, MOST_FORGOTTEN) - 1) end
  if started >= max then
    ahead = redis.call('ZCOUNT', key, '(' .. digits(now + clock.SLACK_MS), '+inf')
    started = started - ahead
  end
  if started < max then return max - started end
  local at = -max - ahead
  local leaving = redis.call('ZRANGE', key, at, at, 'WITHSCORES')
  return 0, tonumber(leaving[2]) + length
end
function limits.keep_starts(key, length)
  if length then redis.call('PEXPIRE', key, digits(length + 1000), 'GT') end
end
function limits.note_starts(base, key, n, length, call)
  local members = {}
  for i = 1, n do
    members[2 * i - 1] = digits(call.now)
    members[2 * i] = order.next(base, call)
  end
  in_chunks('ZADD', key, nil, members)
  redis.call('PEXPIRE', key, length + 1000)
end
local function tokens_in(key, bucket, now)
  local kept = redis.call('HMGET', key, 'tokens', 'at')
  if not kept[1] or clock.is_ahead(kept[2] + 0, now) then return bucket.capacity end
  return math.min(bucket.capacity, tonumber(kept[1]) + math.floor(math.max(0, now - kept[2]) * bucket.refill / 1000))
end
function limits.affordable_at(key, bucket, cost, now)
  local missing = math.min(cost, bucket.capacity) - tokens_in(key, bucket, now)
  return missing <= 0 and now or now + math.min(math.ceil(missing * 1000 / bucket.refill), LONGEST_MS)
end
local function expire_when_full(key, bucket, tokens)
  local until_full = math.min(math.ceil((bucket.capacity - tokens) * 1000 / bucket.refill), LONGEST_MS)
  redis.call('PEXPIRE', key, digits(until_full + 1000))
end
function limits.pay(key, bucket, cost, now)
  local left = tokens_in(key, bucket, now) - cost
  redis.call('HSET', key, 'tokens', digits(left), 'at', digits(now))
  expire_when_full(key, bucket, left)
end
function limits.keep_tokens(key, bucket, now)
  if bucket and exists(key) then expire_when_full(key, bucket, tokens_in(key, bucket, now)) end
end
function limits.note_use(base)
  if exists(base .. ':limits') then
    redis.call('HSET', base .. ':meta', 'limits', '1')
  else
    redis.call('HDEL', base .. ':meta', 'limits')
  end
end
function limits.allowance(base, slots, call)
  call.open_at, call.full = nil, nil
  if not call.seen.limits then return slots end
  local set = redis.call('HMGET', base .. ':limits', 'concurrency', 'rate_max', 'rate_ms', 'gate')
  local allowed, gate = slots, tonumber(set[4] or 0)
  if gate > call.now then
    call.open_at = gate
    return 0
  end
  if set[2] then
    local left, at = limits.window(base .. ':rate', tonumber(set[2]), tonumber(set[3]), call.now, KEPT.queue)
    allowed, call.open_at = math.min(allowed, left), at
  end
  if set[1] then
    local running = entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane')
    local left = math.max(0, set[1] - running - redis.call('ZCARD', base .. ':stopping'))
    if left == 0 then call.full = true end
    allowed = math.min(allowed, left)
  end
  return allowed
end
function limits.freed(n, call)
  if call.seen.limits then call.startable = call.startable + n end
end
function limits.started(base, n, call)
  if n == 0 or not call.seen.limits then return end
  local length = redis.call('HGET', base .. ':limits', 'rate_ms')
  if length then limits.note_starts(base, base .. ':rate', n, math.max(tonumber(length), KEPT_MS), call) end
end
function limits.close_gate(base, at, call)
  local key = queue_flags.create(base, 'limits', call.seen)
  local before = tonumber(redis.call('HGET', key, 'gate') or 0)
  if at > before then redis.call('HSET', key, 'gate', digits(at)) end
  redis.call('HSET', base .. ':meta', 'limits', '1')
end
function limits.forget_gate(base, call)
  local gate = tonumber(redis.call('HGET', base .. ':limits', 'gate') or nil)
  if not gate or gate > call.now then return end
  redis.call('HDEL', base .. ':limits', 'gate')
  limits.note_use(base)
end
end
local keyed
do
keyed = {}
local KEYS_A_STEP = 25
local MOST_TOUCHED = 25
local MEMBER = 18                -- where the id begins in a member of a line
local LOCATION = {i = 'key-waiting i', o = 'key-waiting o', h = 'key-waiting h'}
function keyed.parse(route)
  local priority, sequence, cost, added, key = string.match(route, '^k (%d+) (%d+) (%d+) (%d+) (.*)$')
  return {priority = priority, sequence = sequence, cost = cost, added = added, key = key}
end
function keyed.added_of(route)
  return string.match(route, '^k %d+ %d+ %d+ (%d+) ')
end
function keyed.format(route)
  return 'k ' .. route.priority .. ' ' .. route.sequence .. ' ' .. route.cost .. ' ' .. route.added .. ' ' .. route.key
end
function keyed.route_of(base, id)
  local text = redis.call('HGET', base .. ':job:' .. id, 'route')
  return text and string.sub(text, 1, 1) == 'k' and keyed.parse(text) or nil
end
function keyed.touch(call, key, waits)
  local touched = call.touched
  if not touched then
    touched = {}
    call.touched = touched
  end
  if touched[key] == nil then touched[#touched + 1] = key end
  touched[key] = waits and touched[key] or waits or false
end
function keyed.is_costly(seen)
  return seen.limited or seen.resting or seen.pauses
end
function keyed.has_touched_many(call)
  return #(call.touched or {}) >= MOST_TOUCHED
end
do
  local FIELDS = {'concurrency', 'rate_max', 'rate_ms', 'capacity', 'refill'}
  local NONE = {}
  local function read(base, key, common)
    local own = redis.call('HMGET', base .. ':key:' .. key, unpack(FIELDS))
    if not own[2] then own[2], own[3] = common[2], common[3] end
    if not own[4] then own[4], own[5] = common[4], common[5] end
    return {
      concurrency = tonumber(own[1] or common[1] or nil),
      max = tonumber(own[2] or nil), length = tonumber(own[3] or nil),
      bucket = own[4] and {capacity = tonumber(own[4]), refill = tonumber(own[5])},
    }
  end
  function keyed.limits_of(base, key, call)
    if not call.seen.limited then return NONE end
    local known = call.key_limits
    if not known then
      known = {common = redis.call('HMGET', base .. ':key:', unpack(FIELDS)), keys = {}}
      call.key_limits = known
    end
    local found = known.keys[key]
    if not found then
      found = read(base, key, known.common)
      known.keys[key] = found
    end
    return found
  end
end
function keyed.cost_of_first(base, queue)
  local first = redis.call('ZRANGE', queue, '0', '0')[1]
  local route = keyed.route_of(base, string.sub(first, MEMBER))
  return route and tonumber(route.cost) or 0
end
local function open_at(base, key, limits_now, call)
  local at = call.now
  if call.seen.pauses then at = math.max(at, tonumber(redis.call('ZSCORE', base .. ':pauses', key) or 0)) end
  if limits_now.max then
    local _, free_at = limits.window(base .. ':keyrate:' .. key, limits_now.max, limits_now.length, call.now)
    at = math.max(at, free_at or at)
  end
  if limits_now.bucket then
    local cost = keyed.cost_of_first(base, base .. ':keyq:' .. key)
    at = math.max(at, limits.affordable_at(base .. ':keybucket:' .. key, limits_now.bucket, cost, call.now))
  end
  return at
end
function keyed.room(base, key, limits_now, call)
  local concurrency = limits_now.concurrency or 1
  local left = concurrency - (call.seen.running and redis.call('HGET', base .. ':running', key) or 0)
  if left > 0 and concurrency == 1 and call.seen.resting and exists(base .. ':keyrest:' .. key) then return 0 end
  return left
end
do
  local AT_ONCE = 16
  local function note_waiting(base, touched)
    local unknown, names = {}, {}
    for i = 1, #touched do
      local key = touched[i]
      if not touched[key] then unknown[#unknown + 1], names[#names + 1] = key, base .. ':keyq:' .. key end
    end
    for from = 1, #unknown, AT_ONCE do
      local last = math.min(from + AT_ONCE - 1, #unknown)
      local count = redis.call('EXISTS', unpack(names, from, last))
      for i = from, last do
        touched[unknown[i]] = count == last - from + 1 or (count > 0 and exists(names[i]))
      end
    end
  end
  local function running_among(base, touched, released, call)
    local asked, found = {}, {}
    if not call.seen.running then return found end
    for _, key in ipairs(touched) do
      if touched[key] and not (released and released[key]) then asked[#asked + 1] = key end
    end
    for i, count in ipairs(asked[1] and redis.call('HMGET', base .. ':running', unpack(asked)) or asked) do
      if count then found[asked[i]] = true end
    end
    return found
  end
  local function start_of(base, key, call)
    local limits_now = keyed.limits_of(base, key, call)
    local left = keyed.room(base, key, limits_now, call)
    return left, left > 0 and open_at(base, key, limits_now, call)
  end
  local function note_ready(base, ready, seen)
    local widen = not seen.ready and #ready > 2 * AT_ONCE
    local key = queue_flags.create(base, 'ready', seen)
    if widen then redis.call('ZADD', key, '0', WIDENER) end
    in_chunks('ZADD', key, 'NX', ready)
    if widen then redis.call('ZREM', key, WIDENER) end
  end
  function keyed.review(base, call)
    local touched, seen = call.touched, call.seen
    if not touched then return end
    keyed.write_entered(base, call)
    note_waiting(base, touched)
    local running = running_among(base, touched, call.released, call)
    call.touched, call.released = nil, nil
    local ready, not_ready, sleeping, awake = {}, {}, {}, {}
    local now, simple, startable = call.now, not keyed.is_costly(seen), call.startable
    for i = 1, #touched do
      local key = touched[i]
      local waits, left, at = touched[key], 0, false
      if not waits then
        at = false
      elseif not simple then
        left, at = start_of(base, key, call)
      elseif not running[key] then
        left, at = 1, now
      end
      if at == now then
        local n = #ready
        ready[n + 1], ready[n + 2] = waits ~= true and waits or order.next(base, call), key
        startable = startable + (left > 1 and math.min(left, redis.call('ZCARD', base .. ':keyq:' .. key)) or 1)
      elseif seen.ready then
        not_ready[#not_ready + 1] = key
      end
      if at and at > now then
        sleeping[#sleeping + 1], sleeping[#sleeping + 2] = digits(at), key
      elseif seen.sleeping then
        awake[#awake + 1] = key
      end
    end
    call.startable = startable
    in_chunks('ZREM', base .. ':ready', nil, not_ready)
    in_chunks('ZREM', base .. ':sleeping', nil, awake)
    if ready[1] then note_ready(base, ready, seen) end
    if sleeping[1] then
      in_chunks('ZADD', queue_flags.create(base, 'sleeping', seen), nil, sleeping)
      call.slept = true
    end
  end
end
function keyed.arrive(base, route, call)
  if route.sequence ~= '0' then return false end
  route.sequence = order.next(base, call)
  return true
end
local function join_line(base, id, key, priority, sequence, call, hint)
  redis.call('ZADD', base .. ':keyq:' .. key, priority, sequence .. hint .. id)
  local entered = call.entered
  if not entered then
    entered = {}
    call.entered = entered
  end
  local n = #entered
  entered[n + 1], entered[n + 2] = sequence, id
  return LOCATION[hint]
end
function keyed.enter(base, id, route, call, hint)
  keyed.touch(call, route.key, true)
  return join_line(base, id, route.key, route.priority, route.sequence, call, hint)
end
function keyed.first_route(extra, sequence, added)
  local priority, cost = extra.priority, extra.cost
  return 'k ' .. (priority and digits(priority) or '0') .. ' ' .. sequence .. ' ' .. (cost and digits(cost) or '1000')
    .. ' ' .. added .. ' ' .. extra.key
end
function keyed.enter_first(base, id, extra, added, call, hint)
  local sequence, key = order.next(base, call), extra.key
  keyed.touch(call, key, sequence)
  return join_line(base, id, key, extra.priority or '0', sequence, call, hint),
    extra.alone and 'k 0 ' .. sequence .. ' 1000 ' .. added .. ' ' .. key or keyed.first_route(extra, sequence, added)
end
function keyed.write_entered(base, call)
  if call.entered then in_chunks('ZADD', base .. ':keyed', nil, call.entered) end
  call.entered = nil
end
function keyed.leave(base, id, call)
  local kept = redis.call('HMGET', base .. ':job:' .. id, 'route', 'place')
  local route, hint = keyed.parse(kept[1]), string.sub(kept[2], -1)
  keyed.write_entered(base, call)
  redis.call('ZREM', base .. ':keyq:' .. route.key, route.sequence .. hint .. id)
  redis.call('ZREM', base .. ':keyed', id)
  keyed.touch(call, route.key)
end
do
  local function release_all(base, keys, call)
    local released = call.released or {}
    call.released = released
    for _, key in ipairs(keys) do
      keyed.touch(call, key)
      released[key] = true
    end
    in_chunks('HDEL', base .. ':running', nil, keys)
    call.seen.running = exists(base .. ':running')
  end
  local function forget_limits(base, call)
    if exists(base .. ':limited') or exists(base .. ':running') then return end
    redis.call('HDEL', base .. ':meta', 'key_limits')
    call.seen.limited, call.seen.running = nil, nil
  end
  function keyed.release(base, keys, call)
    if not call.seen.limited then return release_all(base, keys, call) end
    local hash, ended, names = base .. ':running', {}, {}
    for _, key in ipairs(keys) do
      if not ended[key] then names[#names + 1] = key end
      ended[key] = (ended[key] or 0) + 1
      keyed.touch(call, key)
    end
    local over = {}
    for i, count in ipairs(redis.call('HMGET', hash, unpack(names))) do
      local left = (count or 0) - ended[names[i]]
      if left > 0 then redis.call('HSET', hash, names[i], left) else over[#over + 1] = names[i] end
    end
    if over[1] then
      redis.call('HDEL', hash, unpack(over))
      forget_limits(base, call)
    end
  end
end
function keyed.refund(base, id, key, call)
  local limits_now = keyed.limits_of(base, key, call)
  if limits_now.max then redis.call('ZPOPMAX', base .. ':keyrate:' .. key) end
  local route = limits_now.bucket and keyed.route_of(base, id)
  if route then redis.call('HINCRBY', base .. ':keybucket:' .. key, 'tokens', route.cost) end
end
function keyed.rest(base, id, key, call)
  redis.call('SADD', base .. ':keyrest:' .. key, id)
  redis.call('HSET', queue_flags.create(base, 'resting', call.seen), id, key)
  keyed.touch(call, key)
end
function keyed.wake_up(base, id, call)
  local key = call.seen.resting and redis.call('HGET', base .. ':resting', id)
  if not key then return end
  redis.call('HDEL', base .. ':resting', id)
  redis.call('SREM', base .. ':keyrest:' .. key, id)
  keyed.touch(call, key)
end
function keyed.promote(base, call)
  if not call.seen.sleeping then return false end
  repeat
    local keys = redis.call('ZRANGEBYSCORE', base .. ':sleeping', '-inf', digits(call.now), 'LIMIT', 0, KEYS_A_STEP)
    for _, key in ipairs(keys) do keyed.touch(call, key) end
    if #keys < KEYS_A_STEP then return false end
    keyed.review(base, call)
  until budget.has_settled_enough(call.budget)
  return true
end
function keyed.pause(base, key, at, call)
  local pauses = queue_flags.create(base, 'pauses', call.seen)
  local before = tonumber(redis.call('ZSCORE', pauses, key) or 0)
  if at > before then redis.call('ZADD', pauses, digits(at), key) end
  keyed.touch(call, key)
end
end
local stopping
do
stopping = {}
function stopping.is_limited(base, entry, call)
  if string.sub(entry, 1, 1) == 'k' then return true end
  return call.seen.limits and redis.call('HGET', base .. ':limits', 'concurrency') and true or false
end
function stopping.keep(base, id, entry, key, row, call)
  local lock = string.match(redis.call('HGET', base .. ':job:' .. id, 'claim') or '', '^%d+ %d+ (%d+)')
  if not lock then return false end
  redis.call('ZADD', base .. ':stopping', digits(call.now - row[3] + lock), entry)
  redis.call('HSET', base .. ':stopping_runs', entry, row[2] .. SEP .. lock .. SEP .. (key or ''))
  return true
end
local function find(base, entry)
  local run = redis.call('HGET', base .. ':stopping_runs', entry)
  if not run then return nil end
  local consumer, lock, key = string.match(run, '^(.-)' .. SEP .. '(%d+)' .. SEP .. '(.*)$')
  return consumer, tonumber(lock), key
end
local function forget(base, entry, key, call)
  redis.call('ZREM', base .. ':stopping', entry)
  redis.call('HDEL', base .. ':stopping_runs', entry)
  if key ~= '' then keyed.release(base, {key}, call) end
  limits.freed(1, call)
end
function stopping.finish(base, consumer, ended, call)
  local count = 0
  for _, entry in ipairs(ended) do
    local holder, _, key = find(base, entry)
    if holder and holder == consumer then
      forget(base, entry, key, call)
      count = count + 1
    end
  end
  return count
end
function stopping.renew(base, consumer, named, now)
  if not exists(base .. ':stopping') then return end
  for _, entry in ipairs(named) do
    local holder, lock = find(base, entry)
    if holder and holder == consumer then redis.call('ZADD', base .. ':stopping', digits(now + lock), entry) end
  end
end
function stopping.expire(base, counted, most, call)
  local key, count = base .. ':stopping', 0
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', call.now, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #due, 2 do
    local _, lock, ordering_key = find(base, due[i])
    if not lock or counted(call.now - due[i + 1] + lock) >= lock then
      forget(base, due[i], ordering_key or '', call)
      count = count + 1
    end
  end
  return count
end
function stopping.by_key(base)
  if redis.call('HLEN', base .. ':stopping_runs') > 1000 then return nil end
  local flat, keys = redis.call('HGETALL', base .. ':stopping_runs'), {}
  for i = 2, #flat, 2 do
    local key = string.match(flat[i], SEP .. '%d+' .. SEP .. '(.+)$')
    if key then keys[key] = (keys[key] or 0) + 1 end
  end
  return keys
end
end
local keyed_claim
do
keyed_claim = {}
local KEYS_AT_ONCE = 64
local HINT, MEMBER = 17, 18    -- where the read hint and the id begin in a member of a line
local READ = {i = 'fi', o = 'fo', h = 'h'}
local function note_taken(out, member, key)
  local n = #out.ids + 1
  out.ids[n], out.keys[n], out.whats[n] = string.sub(member, MEMBER), key, READ[string.sub(member, HINT, HINT)]
end
local take_first
do
  local function note_started(base, keys, call)
    local is_new, started = not call.seen.running, {}
    local hash = queue_flags.create(base, 'running', call.seen)
    for i, key in ipairs(keys) do started[2 * i - 1], started[2 * i] = key, '1' end
    if is_new then redis.call('HSET', hash, SEP, WIDENER) end
    redis.call('HSET', hash, unpack(started))
    if is_new then redis.call('HDEL', hash, SEP) end
  end
  function take_first(base, popped, call, out)
    local started = {}
    for i = 1, #popped, 2 do
      local key = popped[i]
      local first = redis.call('ZPOPMIN', base .. ':keyq:' .. key)[1]
      if first then
        note_taken(out, first, key)
        started[#started + 1] = key
      else
        keyed.touch(call, key)
      end
    end
    if started[1] then note_started(base, started, call) end
  end
end
local function take(base, key, n, call, out)
  local limits_now = keyed.limits_of(base, key, call)
  local queue = base .. ':keyq:' .. key
  n = math.min(n, keyed.room(base, key, limits_now, call))
  if limits_now.max then
    n = math.min(n, (limits.window(base .. ':keyrate:' .. key, limits_now.max, limits_now.length, call.now)))
  end
  local bucket, paid, taken = limits_now.bucket, base .. ':keybucket:' .. key, 0
  while taken < n do
    if bucket then
      if redis.call('ZCARD', queue) == 0 then break end
      local cost = keyed.cost_of_first(base, queue)
      if limits.affordable_at(paid, bucket, cost, call.now) > call.now then break end
      limits.pay(paid, bucket, cost, call.now)
    end
    local popped = redis.call('ZPOPMIN', queue, bucket and '1' or digits(n))
    for i = 1, #popped, 2 do
      note_taken(out, popped[i], key)
      taken = taken + 1
    end
    if not bucket then break end
  end
  if taken > 0 then
    redis.call('HINCRBY', queue_flags.create(base, 'running', call.seen), key, digits(taken))
  end
  if limits_now.max and taken > 0 then
    limits.note_starts(base, base .. ':keyrate:' .. key, taken, limits_now.length, call)
  end
  if limits_now.concurrency or taken == 0 then keyed.touch(call, key) end
end
function keyed_claim.pop(base, count, call)
  local out = {ids = {}, keys = {}, whats = {}}
  while #out.ids < count do
    local left = count - #out.ids
    local popped = redis.call('ZPOPMIN', base .. ':ready', digits(math.min(left, KEYS_AT_ONCE)))
    if #popped == 0 then break end
    if call.seen.limited then
      local share = math.max(1, math.floor(left * 2 / #popped))
      for i = 1, #popped, 2 do take(base, popped[i], math.min(share, count - #out.ids), call, out) end
    else
      take_first(base, popped, call, out)
    end
    keyed.review(base, call)
  end
  in_chunks('ZREM', base .. ':keyed', nil, out.ids)
  return out
end
end
local routes
do
routes = {}
function routes.of(extra, added)
  if extra.key then return keyed.first_route(extra, '0', added) end
  if extra.lifo then return 'l' end
  if extra.priority and extra.priority > 0 then return 'p ' .. digits(extra.priority) end
  return nil
end
function routes.extra_of(route)
  local kind = string.sub(route, 1, 1)
  if kind == 'k' then
    local wanted = keyed.parse(route)
    return {key = wanted.key, cost = tonumber(wanted.cost), priority = tonumber(wanted.priority)}
  end
  if kind == 'l' then return {lifo = true} end
  return kind == 'p' and {priority = tonumber(string.sub(route, 3))} or nil
end
local enter = {}
function enter.p(base, id, route, call)
  local sequence = order.next(base, call)
  redis.call('ZADD', queue_flags.create(base, 'prioritized', call.seen), string.sub(route, 3), sequence .. id)
  call.startable = call.startable + 1
  return 'prioritized ' .. sequence
end
function enter.l(base, id, _, call)
  redis.call('ZADD', queue_flags.create(base, 'lifo', call.seen), order.next(base, call), id)
  call.startable = call.startable + 1
  return 'waiting i'
end
function enter.k(base, id, text, call, hint)
  local route = keyed.parse(text)
  if keyed.arrive(base, route, call) then redis.call('HSET', base .. ':job:' .. id, 'route', keyed.format(route)) end
  return keyed.enter(base, id, route, call, hint)
end
function routes.enter(base, id, route, call, hint)
  if route then return enter[string.sub(route, 1, 1)](base, id, route, call, hint or 'h') end
  call.startable = call.startable + 1
  return 'waiting s' .. redis.call('XADD', base .. ':stream', '*', hint or 'h', id)
end
function routes.enter_first(base, id, extra, added, call, hint)
  if extra.key then return keyed.enter_first(base, id, extra, added, call, hint) end
  local route = routes.of(extra, added)
  return routes.enter(base, id, route, call, hint), route
end
function routes.enter_again(base, id, call)
  return routes.enter(base, id, redis.call('HGET', base .. ':job:' .. id, 'route'), call)
end
end
local locations
do
locations = {}
do
  local NUMBERED = {prioritized = true, scheduled = true}
  function locations.id_of(structure, member)
    return NUMBERED[structure] and string.sub(member, 17) or member
  end
end
function locations.is_final(state)
  return state == 'completed' or state == 'failed'
end
function locations.is_unstarted(state)
  return state and state ~= 'active' and not locations.is_final(state)
end
function locations.give_up(base, stream, raw, call)
  local id, key, entry = entries.find(stream, raw)
  entries.drop(stream, {raw})
  if key then keyed.release(base, {key}, call) end
  limits.freed(1, call)
  return id, entry
end
local leave = {}
function leave.waiting(base, id, entry)
  if entry == 'r' then
    redis.call('ZREM', base .. ':returned', id)
  elseif entry == 'i' then
    redis.call('ZREM', base .. ':lifo', id)
  else
    local stream, raw = entries.stream_of(base, entry)
    entries.drop(stream, {raw})
  end
end
function leave.prioritized(base, id, entry)
  redis.call('ZREM', base .. ':prioritized', entry .. id)
end
leave['key-waiting'] = function(base, id, _, call)
  keyed.leave(base, id, call)
end
function leave.active(base, id, entry, call)
  local stream, raw = entries.stream_of(base, entry)
  local row = stopping.is_limited(base, entry, call) and entries.pending_row(stream, raw)
  if row and stopping.keep(base, id, entry, select(2, entries.find(stream, raw)), row, call) then
    entries.drop(stream, {raw})
  else
    locations.give_up(base, stream, raw, call)
  end
end
function leave.delayed(base, id, entry, call)
  redis.call('ZREM', base .. ':scheduled', entry .. id)
  keyed.wake_up(base, id, call)
end
function leave.completed(base, id)
  redis.call('ZREM', base .. ':completed', id)
end
function leave.failed(base, id)
  redis.call('ZREM', base .. ':failed', id)
end
function locations.leave(base, id, call)
  local state, entry = record.location(base, id)
  leave[state](base, id, entry, call)
  return entry
end
function locations.ready_count(base)
  local stream = base .. ':stream'
  return redis.call('XLEN', stream) - entries.pending_count(stream) + redis.call('ZCARD', base .. ':returned')
    + redis.call('ZCARD', base .. ':lifo') + redis.call('ZCARD', base .. ':prioritized')
    + redis.call('ZCARD', base .. ':ready')
end
end
local wakeup
do
wakeup = {}
local SECOND_LATER_MS = 100
local MOST_DEAD = 200            -- maximum number of dead workers that one call finds; the next call continues
function wakeup.send(base, consumer, message)
  local heard = redis.pcall('SPUBLISH', base .. ':wake:' .. consumer, message)
  if type(heard) == 'number' then return heard end
  return nil
end
local send = wakeup.send
function wakeup.paused(base)
  return redis.call('HGET', base .. ':meta', 'paused') == '1'
end
function wakeup.wake(base, n)
  local key, dead = base .. ':idle', 0
  while n > 0 and dead < MOST_DEAD do
    local popped = redis.call('ZPOPMAX', key)
    if not popped[1] then return end
    local heard = send(base, popped[1], 'w')
    if not heard then
      redis.call('ZADD', key, popped[2], popped[1])
      return
    end
    if heard > 0 then n = n - tonumber(popped[2]) else dead = dead + 1 end
  end
end
local function is_idle(base, consumer)
  return consumer and redis.call('ZSCORE', base .. ':idle', consumer)
end
local function head(key)
  local first = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')
  return first[2] and tonumber(first[2])
end
function wakeup.next_due(base, call)
  local seen = call.seen
  if call.full then return nil end
  local open_at = not seen.paused and call.open_at
  if open_at and locations.ready_count(base) > 0 then return open_at end
  local due = seen.scheduled and head(base .. ':scheduled')
  local awake = seen.sleeping and head(base .. ':sleeping')
  if awake and (not due or awake < due) then due = awake end
  return due and math.max(due, open_at or due) or nil
end
function wakeup.register(base, consumer, slots, call)
  redis.call('ZADD', base .. ':idle', digits(slots), consumer)
  local due = wakeup.next_due(base, call)
  local timer = base .. ':timer'
  if not due then
    if call.seen.timer then redis.call('UNLINK', timer) end
    return 0
  end
  local holders = redis.call('HMGET', timer, 'first', 'second', 'due')
  local first, second = holders[1], holders[2]
  if first == consumer or not is_idle(base, first) or tonumber(holders[3]) > due then
    redis.call('HSET', queue_flags.create(base, 'timer', call.seen), 'first', consumer, 'due', digits(due))
    if second == consumer then redis.call('HDEL', timer, 'second') end
    return due
  end
  if second == consumer or not is_idle(base, second) then
    redis.call('HSET', timer, 'second', consumer)
    return due + SECOND_LATER_MS
  end
  return 0
end
local function retime(base, consumer)
  local holder = redis.call('HGET', base .. ':timer', 'first')
  if (holder and holder == consumer) or (is_idle(base, holder) and send(base, holder, 'w') ~= 0) then return end
  for _, idle in ipairs(redis.call('ZRANGE', base .. ':idle', 0, MOST_DEAD - 1)) do
    if idle == consumer or send(base, idle, 'w') ~= 0 then return end
    redis.call('ZREM', base .. ':idle', idle)
  end
end
function wakeup.due_changed(base, consumer, call)
  local due = wakeup.next_due(base, call)
  if not due then return end
  local timer = redis.call('HMGET', base .. ':timer', 'first', 'due')
  if is_idle(base, timer[1]) and tonumber(timer[2]) <= due then return end
  retime(base, consumer)
end
function wakeup.leave(base, consumer, call)
  redis.call('ZREM', base .. ':idle', consumer)
  local seen = call.seen
  if not (seen.timer or seen.scheduled or seen.sleeping or seen.limits) then return end
  local timer = base .. ':timer'
  local holder = redis.call('HGET', timer, 'first')
  if holder and holder ~= consumer and is_idle(base, holder) then return end
  redis.call('UNLINK', timer)
  if wakeup.next_due(base, call) then retime(base, consumer) end
end
function wakeup.settle_down(base, caller, free, call)
  if free > 0 and caller.subscribed then return wakeup.register(base, caller.consumer, free, call) end
  if caller.registered then wakeup.leave(base, caller.consumer, call) end
  return free > 0 and wakeup.next_due(base, call) or 0
end
function wakeup.finish(base, call)
  keyed.review(base, call)
  events.write(base, call.lines, call.now)
  local seen = call.seen
  if not seen.paused then
    wakeup.wake(base, call.startable > 0 and limits.allowance(base, call.startable, call) or 0)
  end
  if seen.scheduled or seen.sleeping or call.open_at then wakeup.due_changed(base, nil, call) end
end
end
local returned
do
returned = {}
local function order_of(entry)
  local ms, seq = string.match(entry, '^%a(%d+)-(%d+)$')
  return digits(ms * 4096 + math.min(tonumber(seq), 4095))
end
function returned.push(base, id, entry, call)
  local key = base .. ':job:' .. id
  record.keep_added(base, id, entry)
  if string.sub(entry, 1, 1) == 'k' then
    redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
    return
  end
  local position = string.sub(entry, 1, 1) == 's' and order_of(entry)
    or string.match(redis.call('HGET', key, 'claim') or '', '^%d+ %d+ %d+ (%d+)') or order_of(entry)
  redis.call('HSET', key, 'place', 'waiting r')
  redis.call('ZADD', queue_flags.create(base, 'returned', call.seen), position, id)
  call.startable = call.startable + 1
end
end
local scheduled
do
scheduled = {}
local PROMOTE_STEP = 200
local PIECE = 25
function scheduled.push(base, id, due, call)
  local sequence = order.next(base, call)
  redis.call('ZADD', queue_flags.create(base, 'scheduled', call.seen), digits(due), sequence .. id)
  return 'delayed ' .. sequence
end
function scheduled.take_out(base, id)
  local _, sequence = record.location(base, id)
  redis.call('ZREM', base .. ':scheduled', sequence .. id)
end
function scheduled.start(base, member, call, detail)
  local sequence, id = string.sub(member, 1, 16), string.sub(member, 17)
  local job = base .. ':job:' .. id
  local kept = redis.call('HMGET', job, 'place', 'route')
  if kept[1] and kept[1] ~= 'delayed ' .. sequence then return false end
  keyed.wake_up(base, id, call)
  if not kept[1] then
    record.lost(base, id, call)
    events.note(call.lines, 'dropped', id, 'missing')
    return false
  end
  redis.call('HSET', job, 'place', routes.enter(base, id, kept[2], call))
  events.note(call.lines, 'waiting', id, detail)
  return true
end
local function promote_due(base, call)
  local key, left = base .. ':scheduled', PROMOTE_STEP
  repeat
    local wanted = math.min(left, PIECE)
    local due = redis.call('ZRANGEBYSCORE', key, '-inf', digits(call.now), 'LIMIT', '0', digits(wanted))
    for _, member in ipairs(due) do scheduled.start(base, member, call) end
    if #due > 0 then in_chunks('ZREM', key, nil, due) end
    if #due < wanted then return false end
    left = left - #due
    keyed.review(base, call)
  until left == 0 or budget.has_settled_enough(call.budget)
  return true
end
function scheduled.promote(base, call)
  call.behind = keyed.promote(base, call)
  if call.seen.scheduled and promote_due(base, call) then call.behind = true end
  keyed.review(base, call)
end
end
local successors
do
successors = {}
successors.NEVER = 253402300799000    -- the last second of the year 9999
local function can_take(base, id, state, call)
  if not locations.is_unstarted(state) or record.has_started(base, id) then return false end
  local late = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', id)
  return not late or tonumber(late) > call.now
end
local function give(base, id, name, data)
  redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data)
  return 'duplicate', id
end
function successors.meet(base, wanted, name, data, call)
  local owner, successor = dedup.owner(base, wanted, call.now)
  local state = owner and record.location(base, owner)
  if not state or locations.is_final(state) then return nil end
  if can_take(base, owner, state, call) then return give(base, owner, name, data) end
  if state ~= 'active' and not record.has_started(base, owner) then return nil end    -- expired
  local next_state = successor and record.location(base, successor)
  if next_state and can_take(base, successor, next_state, call) then return give(base, successor, name, data) end
  local runs = next_state and not locations.is_final(next_state) and record.has_started(base, successor)
  return nil, nil, runs and successor or owner
end
function successors.put_off(base, id, extra, call)
  local after = extra.at and '@' .. digits(extra.at) or '+' .. digits(extra.delay or 0)
  return scheduled.push(base, id, successors.NEVER, call), after
end
function successors.is_held(base, id, entry)
  return tonumber(redis.call('ZSCORE', base .. ':scheduled', entry .. id) or 0) == successors.NEVER
end
function successors.is_expected(base, id, entry)
  if not successors.is_held(base, id, entry) then return true end
  local d = redis.call('HGET', base .. ':deduped', id)
  local _, successor = dedup.owner(base, {id = d or ''}, 0)
  return successor == id
end
function dedup.start_next(base, id, call)
  local state, entry = record.location(base, id)
  if not state or locations.is_final(state) then return false end
  if state ~= 'delayed' or not successors.is_held(base, id, entry) then return true end
  local key = base .. ':job:' .. id
  local sign, ms = string.match(redis.call('HGET', key, 'after') or '+0', '^([+@])(%d+)$')
  local due = tonumber(ms or 0) + (sign == '+' and call.now or 0)
  locations.leave(base, id, call)
  if due > call.now then
    redis.call('HSET', key, 'place', scheduled.push(base, id, due, call))
    return true
  end
  redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
  events.note(call.lines, 'waiting', id, 'followed')
  call.behind = true
  return true
end
register('getDeduplication', function(base, args)
  return dedup.owner(base, {id = args[1]}, clock.now()) or ''
end, {'no-writes'})
request.register('releaseDeduplication', function(base, args)
  local call = queue_flags.call(base)
  local owned = dedup.release(base, args[3], call)
  wakeup.finish(base, call)
  return owned and 1 or 0
end, {'allow-oom'})
end
local metrics
do
metrics = {}
do
  local MINUTE_MS, DAY_MS, KEEP_MS = 60000, 86400000, '90000000'
  local function key_of(base, state, hour)
    return base .. ':metrics:' .. state .. ':' .. digits(hour)
  end
  function metrics.count(base, state, n, run_ms, now)
    local minute = math.floor(now / MINUTE_MS)
    local key, field = key_of(base, state, math.floor(minute / 60)), digits(minute % 60)
    if redis.call('HINCRBY', key, field .. ':n', digits(n)) == n then redis.call('PEXPIRE', key, KEEP_MS) end
    if run_ms > 0 then redis.call('HINCRBY', key, field .. ':ms', digits(run_ms)) end
  end
  local function minutes_of(base, state, hour, first, last, rows)
    local flat, counts = redis.call('HGETALL', key_of(base, state, hour)), {}
    if #flat == 0 then return end
    for i = 1, #flat, 2 do counts[flat[i]] = tonumber(flat[i + 1]) end
    for minute = math.max(first, hour * 60), math.min(last, hour * 60 + 59) do
      local field = digits(minute % 60)
      if counts[field .. ':n'] then
        rows[#rows + 1] = {minute, counts[field .. ':n'], counts[field .. ':ms'] or 0}
      end
    end
  end
  register('getMetrics', function(base, args)
    local state, now, rows = args[1], clock.now(), {}
    if state ~= 'completed' and state ~= 'failed' then fail('ARGUMENT', 'no metrics of state ' .. state) end
    local to = math.min(now, args[3] == '' and now or integer('to', args[3]))
    local from = math.max(now - DAY_MS, args[2] == '' and 0 or integer('from', args[2]))
    local first, last = math.floor(from / MINUTE_MS), math.floor(to / MINUTE_MS)
    for hour = math.floor(first / 60), math.floor(last / 60) do
      minutes_of(base, state, hour, first, last, rows)
    end
    return rows
  end, {'no-writes'})
end
end
local outbox
do
outbox = {}
do
  local FIELDS = {'to', 'id', 'name', 'data', 'opts', 'extra', 'letter'}
  local MOST = 100000
  local STEP = 100
  local STEP_BYTES = 1048576
  local HOLD_MS = 5000
  function outbox.full(base, seen)
    return seen.outbox and redis.call('XLEN', base .. ':outbox') >= MOST
  end
  local function first_entry(base, now)
    local last = redis.call('HGET', base .. ':meta', 'outbox_last')
    if not last then return '*' end
    local ms, sequence = string.match(last, '^(%d+)-(%d+)$')
    return tonumber(ms) < now and '*' or ms .. '-' .. digits(sequence + 1)
  end
  function outbox.push(base, values, call)
    local fields, bytes, seen = {}, 0, call.seen
    for i, name in ipairs(FIELDS) do
      fields[2 * i - 1], fields[2 * i] = name, values[i]
      bytes = bytes + #values[i]
    end
    local entry = seen.outbox and '*' or first_entry(base, call.now)
    redis.call('XADD', queue_flags.create(base, 'outbox', seen), entry, unpack(fields))
    seen.posted = (seen.posted or 0) + bytes
  end
  local function held_by_another(base, holder, now)
    local relaying = redis.call('HGET', base .. ':meta', 'relaying')
    if not relaying then return false end
    local till, name = string.match(relaying, '^(%d+) (.*)$')
    till = tonumber(till)
    return name ~= holder and till > now and not clock.is_ahead(till - HOLD_MS, now)
  end
  local function let_go(base)
    local key, meta = base .. ':outbox', base .. ':meta'
    redis.call('HDEL', meta, 'relaying')
    if not exists(key) or redis.call('XLEN', key) > 0 then return end
    local info = redis.call('XINFO', 'STREAM', key)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then redis.call('HSET', meta, 'outbox_last', info[i + 1]) end
    end
    redis.call('UNLINK', key)
  end
  local function read(key, after)
    local rows, bytes, last = {}, 0, after
    for _ = 1, STEP do
      local entry = redis.call('XRANGE', key, last == '' and '-' or '(' .. last, '+', 'COUNT', 1)[1]
      if not entry then break end
      last = entry[1]
      rows[#rows + 1] = last
      for i = 1, #FIELDS do
        local value = entry[2][2 * i]
        if FIELDS[i] == 'id' and string.sub(value, -1) == '/' then value = value .. last end
        rows[#rows + 1] = value
        bytes = bytes + #value
      end
      if bytes >= STEP_BYTES then break end
    end
    return {rows[1] and last or '', rows}
  end
  register('relayOutbox', function(base, args)
    local holder, after, n, key = args[1], args[2], integer('count', args[3]), base .. ':outbox'
    if #args ~= 3 + n then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' entries') end
    local now, done = clock.now(), {}
    for i = 1, n do done[i] = args[3 + i] end
    in_chunks('XDEL', key, nil, done)
    if held_by_another(base, holder, now) then return {'', {}} end
    local found = read(key, after)
    if not found[2][1] then
      let_go(base)
      return found
    end
    redis.call('HSET', base .. ':meta', 'relaying', digits(now + HOLD_MS) .. ' ' .. holder)
    return found
  end, {'allow-oom'})
end
end
local dead_letters
do
dead_letters = {}
do
  local LONGEST_ID = 480           -- an id may have 512 bytes, and the id of the outbox entry is appended to it
  local function moved_id(queue, id)
    local name = queue .. '/' .. id .. '/'
    if #name <= LONGEST_ID then return name end
    return queue .. '/' .. redis.sha1hex(id) .. '/'
  end
  function dead_letters.move(base, id, cause, reason, call)
    local target, seen = call.seen.dead_letter, call.seen
    if not target or cause == 'revoked' or outbox.full(base, seen) then return end
    local job = redis.call('HMGET', base .. ':job:' .. id, 'name', 'data', 'opts', 'failures', 'letter', 'route')
    if job[5] then return end
    local prefix, queue = string.match(base, '^(.*):{(.*)}$')
    local origin = cmsgpack.pack({queue, id, cause, reason, tonumber(job[4] or 0), call.now, job[6] or ''})
    outbox.push(base, {prefix .. ':{' .. target .. '}', moved_id(queue, id), job[1] or '?', job[2] or '',
      job[3] or '', '', origin}, call)
    events.note(call.lines, 'dead-lettered', id, target)
  end
  register('setDeadLetter', function(base, args)
    redis.call('HSET', base .. ':meta', 'dead_letter', args[1])
    return 'ok'
  end, {'allow-oom'})
  register('getDeadLetter', function(base)
    return redis.call('HGET', base .. ':meta', 'dead_letter') or ''
  end, {'no-writes'})
end
end
local finish
do
finish = {}
local DEFAULT_POLICY = {completed = '1000 86400000', failed = '10000 2592000000'}
local HOLD_MS = 60000
local REPLIES_MAX = 1000
local PUBLISH_MAX = 65536
local TRIM_STEP = 500            -- a call that ends n jobs removes at most n and this many older ones
local function policy_of(state, policy)
  local text = policy == '' and DEFAULT_POLICY[state] or policy
  local count, age = string.match(text, '^(%-?%d+) (%-?%d+)$')
  return tonumber(count), tonumber(age)
end
function finish.check_policy(policy)
  if policy == '' then return end
  local kept = string.gsub(policy, ' t%d+$', '')
  if kept ~= '' and not string.find(kept, '^%-?%d+ %-?%d+$') then
    fail('ARGUMENT', 'a retention policy is "<count> <age ms>[ t<ms>]", found ' .. policy)
  end
end
local function answer(base, channels, state, id, payload)
  local text
  if #payload > PUBLISH_MAX then
    text = state .. '? ' .. #id .. ' ' .. id
  else
    text = state .. ' ' .. #id .. ' ' .. id .. payload
  end
  for channel in string.gmatch(channels, '%S+') do
    redis.pcall('SPUBLISH', base .. ':reply:' .. channel, text)
  end
end
function finish.answer_waiters(base, state, ids, payloads, seen)
  local key = base .. ':waiters'
  if not seen.waiters then return nil end
  local waited = {}
  for from = 1, #ids, CHUNK do
    local last = math.min(from + CHUNK - 1, #ids)
    for i, channels in ipairs(redis.call('HMGET', key, unpack(ids, from, last))) do
      if channels then
        local at = from + i - 1
        local id = ids[at]
        waited[#waited + 1] = id
        waited[id] = true
        answer(base, channels, state, id, payloads[at])
      end
    end
  end
  return waited
end
local function remove_finished(base, state, ids, seen)
  if #ids == 0 then return end
  local held = base .. ':held'
  if seen.held then
    local free = {}
    for from = 1, #ids, CHUNK do
      local last = math.min(from + CHUNK - 1, #ids)
      for i, until_ms in ipairs(redis.call('ZMSCORE', held, unpack(ids, from, last))) do
        if not until_ms then free[#free + 1] = ids[from + i - 1] end
      end
    end
    ids = free
    if #ids > 0 then in_chunks('ZREM', base .. ':' .. state, nil, ids) end
  else
    redis.call('ZREMRANGEBYRANK', base .. ':' .. state, '0', digits(#ids - 1))
  end
  record.unlink(base, ids, seen)
end
local function release(base, ids, received)
  local ending, gone = {}, {completed = {}, failed = {}}
  for _, id in ipairs(ids) do
    local drop = redis.call('HGET', base .. ':job:' .. id, 'drop')
    if not (received and drop == 't') then
      ending[#ending + 1] = id
      local list = drop and gone[record.location(base, id)]
      if list then list[#list + 1] = id end
    end
  end
  in_chunks('ZREM', base .. ':held', nil, ending)
  in_chunks('HDEL', base .. ':waiters', nil, ids)
  for state, list in pairs(gone) do
    in_chunks('ZREM', base .. ':' .. state, nil, list)
    record.unlink(base, list)
  end
  return #ending
end
function finish.release_held(base, now, limit)
  local ids = redis.call('ZRANGEBYSCORE', base .. ':held', '-inf', digits(now), 'LIMIT', '0', digits(limit))
  release(base, ids)
  return #ids
end
local function put(key, ids, instant)
  local members, score, n = {}, digits(instant), 0
  for i = 1, #ids do
    members[n + 1], members[n + 2] = score, ids[i]
    n = n + 2
  end
  in_chunks('ZADD', key, nil, members)
end
local function await_receipts(base, waited, now, seen)
  local widen = not seen.held or #waited >= MANY
  local key = queue_flags.create(base, 'held', seen)
  if widen then redis.call('ZADD', key, '0', WIDENER) end
  put(key, waited, now + HOLD_MS)
  if widen then redis.call('ZREM', key, WIDENER) end
  local from = digits(now)
  local over = redis.call('ZCOUNT', key, from, digits(now + HOLD_MS)) - REPLIES_MAX
  if over <= 0 then return end
  local most = digits(math.min(over, REPLIES_MAX))
  release(base, redis.call('ZRANGEBYSCORE', key, from, '+inf', 'LIMIT', '0', most), true)
end
function finish.without(channels, channel)
  local rest = {}
  for name in string.gmatch(channels, '%S+') do
    if name ~= channel then rest[#rest + 1] = name end
  end
  return rest
end
function finish.confirm(base, channel, ids)
  local key, received = base .. ':waiters', {}
  local held, lists = redis.call('ZMSCORE', base .. ':held', unpack(ids)), redis.call('HMGET', key, unpack(ids))
  for i, id in ipairs(ids) do
    local rest = held[i] and lists[i] and finish.without(lists[i], channel)
    if rest and #rest > 0 then
      redis.call('HSET', key, id, table.concat(rest, ' '))
    elseif rest then
      received[#received + 1] = id
    end
  end
  return release(base, received, true)
end
function finish.is_over(base, id)
  local until_ms = redis.call('ZSCORE', base .. ':held', id)
  if not until_ms or tonumber(until_ms) > clock.now() then return false end
  return redis.call('HEXISTS', base .. ':job:' .. id, 'drop') == 1
end
function finish.remove_over(base, id)
  if not finish.is_over(base, id) then return false end
  redis.call('ZREM', base .. ':held', id)
  redis.call('HDEL', base .. ':waiters', id)
  redis.call('ZREM', base .. ':' .. record.location(base, id), id)
  record.unlink(base, {id})
  return true
end
local function ordinary(base, key, now, seen)
  if not seen.held then return redis.call('ZCARD', key) end
  local last = digits(now)
  return redis.call('ZCOUNT', key, '-inf', last) - redis.call('ZCOUNT', base .. ':held', '-inf', last)
end
local function trim(base, state, count, age, now, seen, most)
  local key, met = base .. ':' .. state, 0
  if count >= 0 then
    local over = math.min(ordinary(base, key, now, seen) - count, most)
    if over > 0 then
      remove_finished(base, state, redis.call('ZRANGE', key, '0', digits(over - 1)), seen)
      met = over
    end
  end
  if age >= 0 and met < most then
    local old = redis.call('ZRANGEBYSCORE', key, '-inf', now - age, 'LIMIT', 0, most - met)
    remove_finished(base, state, old, seen)
    met = met + #old
  end
  return met
end
function finish.trim_all(base, now, seen, most)
  local met = 0
  for _, state in ipairs({'completed', 'failed'}) do
    local count, age = policy_of(state, seen.keep[state])
    met = met + trim(base, state, count, age, now, seen, most - met)
  end
  return met
end
local function adopt_policy(base, state, policy, seen)
  if seen.keep[state] == policy then return end
  seen.keep[state] = policy
  redis.call('HSET', base .. ':meta', 'keep_' .. state, policy)
end
local function keep_waited(base, ids, waited, seen)
  local kept, dropped = {}, {}
  for _, id in ipairs(ids) do
    local list = waited and waited[id] and kept or dropped
    list[#list + 1] = id
  end
  for _, id in ipairs(kept) do redis.call('HSET', base .. ':job:' .. id, 'drop', '1') end
  record.unlink(base, dropped, seen)
  return kept
end
local function keep_until(base, state, ids, instant, seen)
  for _, id in ipairs(ids) do redis.call('HSET', base .. ':job:' .. id, 'drop', 't') end
  put(base .. ':' .. state, ids, instant)
  put(queue_flags.create(base, 'held', seen), ids, instant)
end
function finish.change_ttl(base, id, state, now, ttl)
  local key = base .. ':job:' .. id
  if ttl then return keep_until(base, state, {id}, now + ttl) end
  local found = redis.call('HMGET', key, 'drop', 'ended')
  if found[1] ~= 't' then return end
  redis.call('ZREM', base .. ':held', id)
  redis.call('HDEL', base .. ':waiters', id)
  redis.call('HDEL', key, 'drop')
  put(base .. ':' .. state, {id}, found[2] or now)
end
local function store_group(base, group, now, seen, left)
  local state, ids = group.state, group.ids
  local waited = finish.answer_waiters(base, state, ids, group.payloads, seen)
  local ttl = string.match(group.policy, ' t(%d+)$')
  if ttl then
    keep_until(base, state, ids, now + ttl, seen)
    return left
  end
  local count, age = policy_of(state, group.policy)
  if count == 0 then ids = keep_waited(base, ids, waited, seen) end
  if #ids > 0 then put(base .. ':' .. state, ids, now) end
  if waited and waited[1] then await_receipts(base, waited, now, seen) end
  if count == 0 then return left end
  adopt_policy(base, state, group.policy, seen)
  if left == 0 then return 0 end
  return left - trim(base, state, count, group.policy ~= '' and age or -1, now, seen, left)
end
function finish.note(done, state, policy, id, payload)
  local groups = done[state]
  if not groups then
    groups = {}
    done[state] = groups
  end
  local group = groups[policy]
  if not group then
    group = {state = state, policy = policy, ids = {}, payloads = {}}
    groups[policy], done[#done + 1] = group, group
  end
  local ids = group.ids
  local n = #ids + 1
  ids[n], group.payloads[n] = id, payload
end
function finish.store(base, done, call, run_ms)
  local now, seen, counts, ended = call.now, call.seen, {}, 0
  for _, group in ipairs(done) do ended = ended + #group.ids end
  if seen.held and #done > 0 then finish.release_held(base, now, 10 + 2 * ended) end
  local left = ended + TRIM_STEP
  for _, group in ipairs(done) do
    record.forget_marks(base, group.ids, call)
    left = store_group(base, group, now, seen, left)
    counts[group.state] = (counts[group.state] or 0) + #group.ids
  end
  for state, n in pairs(counts) do metrics.count(base, state, n, run_ms and run_ms[state] or 0, now) end
end
function finish.own_policy(base, id)
  local opts = redis.call('HGET', base .. ':job:' .. id, 'opts')
  if not opts or not string.find(opts, '\161[rf]') then return '' end
  local readable, options = pcall(cmsgpack.unpack, opts)
  if not readable or type(options) ~= 'table' then return '' end
  local ttl, keep = tonumber(options.r), type(options.f) == 'table' and options.f or {}
  if ttl and ttl >= 1 then return ' t' .. digits(ttl) end
  local count, age = tonumber(keep[1]), tonumber(keep[2])
  return count and age and digits(count) .. ' ' .. digits(age) or ''
end
function finish.reason_of(base, id, cause)
  local said = cause == 'revoked' and redis.call('HGET', base .. ':job:' .. id, 'revoked')
  return said and 'revoked: ' .. said or cause
end
function finish.fail(base, id, entry, cause, call, later)
  local reason = finish.reason_of(base, id, cause)
  record.keep_added(base, id, entry)
  redis.call('HSET', base .. ':job:' .. id, 'place', 'failed ' .. entry, 'ended', call.now, 'reason', reason,
    'cause', cause)
  events.note(call.lines, 'failed', id, reason)
  dead_letters.move(base, id, cause, cause, call)
  local done = later or {}
  finish.note(done, 'failed', finish.own_policy(base, id), id, '')
  if not later then finish.store(base, done, call) end
end
end
local removal
do
removal = {}
function removal.strip(base, ids, call)
  record.forget_marks(base, ids, call)
  local waited = ids
  if call.seen.held then
    waited = {}
    for from = 1, #ids, CHUNK do
      local last = math.min(from + CHUNK - 1, #ids)
      for i, instant in ipairs(redis.call('ZMSCORE', base .. ':held', unpack(ids, from, last))) do
        if not instant then waited[#waited + 1] = ids[from + i - 1] end
      end
    end
    in_chunks('ZREM', base .. ':held', nil, ids)
  end
  local payloads = {}
  for i = 1, #waited do payloads[i] = '' end
  finish.answer_waiters(base, 'removed', waited, payloads, call.seen)
  if call.seen.waiters then in_chunks('HDEL', base .. ':waiters', nil, ids) end
  record.unlink(base, ids, call.seen)
end
function removal.remove(base, id, detail, call)
  locations.leave(base, id, call)
  removal.strip(base, {id}, call)
  events.note(call.lines, 'removed', id, detail)
end
function removal.start_anew(base, id, how, call)
  local key, entry = base .. ':job:' .. id, locations.leave(base, id, call)
  record.keep_added(base, id, entry)
  if call.seen.held and redis.call('ZREM', base .. ':held', id) == 1 then redis.call('HDEL', base .. ':waiters', id) end
  redis.call('HDEL', key, 'failures', 'stalls', 'undelivered', 'revoked', 'ended',
    'result', 'reason', 'cause', 'error', 'progress', 'drop')
  redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
  dedup.own_again(base, id, call)
  events.note(call.lines, 'waiting', id, how)
end
end
local add
do
add = {}
local FIELDS = 5
local STEP, COSTLY_STEP = 64, 16
local NOTHING = {}
local KEY_ALONE = 107            -- 'k'; packed options begin with a byte above 127
function add.extra(text)
  if string.byte(text) == KEY_ALONE then return {key = string.sub(text, 2), alone = true} end
  return text ~= '' and cmsgpack.unpack(text) or nil
end
function add.parse(args, from)
  local n = integer('count', args[from])
  local over = #args - from - n * FIELDS    -- 1 with the incarnation
  if n < 1 or over < 0 or over > 1 then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' jobs') end
  local extras, generated, numeric, last, extra, deduplicates = {}, 0, nil, nil, nil, false
  for i = 1, n do
    local at = from + (i - 1) * FIELDS
    local id = args[at + 1]
    if id == '' then
      generated = generated + 1
    elseif string.find(id, '^%d+$') then
      numeric = numeric or {}
      numeric[id] = true
    end
    local text = args[at + 5]
    if text ~= '' then
      if text ~= last then
        last, extra = text, add.extra(text)
        deduplicates = deduplicates or extra.dedup ~= nil
      end
      extras[i] = extra
    end
  end
  return {args = args, from = from, n = n, extras = extras, generated = generated, numeric = numeric,
    deduplicates = deduplicates}
end
local function allocate(base, n, numeric, ever_numeric)
  if n == 0 then return '', nil end
  local last = redis.call('INCRBY', base .. ':id', digits(n))
  if not numeric and not ever_numeric then return digits(last - n + 1), nil end
  local ids, candidate, misses = {}, last - n + 1, 0
  while #ids < n do
    if candidate > last then last = redis.call('INCRBY', base .. ':id', n - #ids) end
    local id = digits(candidate)
    if not (numeric and numeric[id]) and not exists(base .. ':job:' .. id) then
      ids[#ids + 1] = id
    else
      misses = misses + 1
      if misses % 64 == 0 then
        last = redis.call('INCRBY', base .. ':id', 2 ^ (misses / 64 + 5))
        candidate = last
      end
    end
    candidate = candidate + 1
  end
  return '', ids
end
local function is_taken(base, id)
  local state = record.location(base, id)
  if (state == 'completed' or state == 'failed') and finish.remove_over(base, id) then state = nil end
  if not state then
    if string.find(id, '^%d+$') then redis.call('HSET', base .. ':meta', 'numeric_ids', '1') end
    return nil
  end
  return state == 'completed' and 'completed' or 'duplicate'
end
local function is_duplicate(base, wanted, call)
  local owner = dedup.owner(base, wanted, call.now)
  if not owner then return nil end
  local state = record.location(base, owner)
  if wanted.mode == 'throttle' then
    if state == 'completed' and not finish.is_over(base, owner) then return 'completed', owner end
    return 'duplicate', owner
  end
  if not locations.is_unstarted(state) and state ~= 'active' then return nil end
  local late = call.seen.expiry and redis.call('ZSCORE', base .. ':expiry', owner)
  if late and tonumber(late) <= call.now then return nil end
  if wanted.mode == 'simple' then return 'duplicate', owner end
  return nil, not record.has_started(base, owner) and owner or nil
end
local function in_the_way(base, id, extra, call, name, data)
  local status, owner
  local wanted = extra and extra.dedup
  if wanted and wanted.mode == 'keep_last' then
    status = id ~= '' and is_taken(base, id)
    if status then return status, id end
    return successors.meet(base, wanted, name, data, call)
  end
  if wanted then status, owner = is_duplicate(base, wanted, call) end
  if status then return status, owner end
  if id ~= '' and id ~= owner then status = is_taken(base, id) end
  if status then return status, id end
  if owner then removal.remove(base, owner, 'replaced', call) end
  return nil
end
local function added_at(call)
  local added = call.added
  if not added then
    added = digits(call.now)
    call.added = added
  end
  return added
end
local function store_keyed(base, id, name, data, extra, call)
  local location, route = keyed.enter_first(base, id, extra, added_at(call), call, 'i')
  redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data, 'place', location, 'route', route)
end
local function note_waiter(base, id, channel, call)
  local is_new = not call.seen.waiters
  local key = queue_flags.create(base, 'waiters', call.seen)
  if not call.widened and (call.many or is_new) then
    redis.call('HSET', key, SEP, WIDENER, id, channel)
    redis.call('HDEL', key, SEP)
    call.widened = true
  else
    redis.call('HSET', key, id, channel)
  end
end
local function store_with_extra(base, id, name, data, opts, extra, call, first)
  local key, now = base .. ':job:' .. id, call.now
  local due = extra.at or (extra.delay and now + extra.delay)
  if extra.ttl then
    redis.call('ZADD', queue_flags.create(base, 'expiry', call.seen), digits(now + extra.ttl), id)
  end
  if extra.reply then note_waiter(base, id, extra.reply, call) end
  local deduped
  if first then
    deduped = dedup.follow(base, extra.dedup.id, first, id, call)
  elseif extra.dedup then
    deduped = dedup.own(base, extra.dedup, id, call)
  end
  local delayed, added, location, route, after = first or (due and due > now), added_at(call), nil, nil, nil
  if first then
    location, after = successors.put_off(base, id, extra, call)
    route = routes.of(extra, added)
  elseif delayed then
    location, route = scheduled.push(base, id, due, call), routes.of(extra, added)
  else
    location, route = routes.enter_first(base, id, extra, added, call, opts == '' and 'i' or 'o')
  end
  if route and opts == '' and not (delayed or deduped or extra.key) then
    redis.call('HSET', key, 'name', name, 'data', data, 'place', location, 'route', route, 'added', added)
    return false
  end
  local write = {'HSET', key, 'name', name, 'data', data, 'place', location}
  local function put(field, value) write[#write + 1], write[#write + 2] = field, value end
  if opts ~= '' then put('opts', opts) end
  if deduped then put('dedup', deduped) end
  if delayed then put('claim', '0 0 0') end
  if (delayed or route) and not extra.key then put('added', added) end
  if route then put('route', route) end
  if after then put('after', after) end
  redis.call(unpack(write))
  return delayed
end
local function store_plain(stream, key, id, name, data, opts)
  redis.call('HSET', key, 'name', name, 'data', data, 'place',
    'waiting s' .. redis.call('XADD', stream, '*', opts == '' and 'i' or 'o', id))
  if opts ~= '' then redis.call('HSET', key, 'opts', opts) end
end
local function store(base, id, name, data, opts, extra, call, first)
  local delayed, detail = false, name
  if extra then
    if extra.alone and opts == '' then
      store_keyed(base, id, name, data, extra, call)
    else
      delayed = store_with_extra(base, id, name, data, opts, extra, call, first)
    end
    if extra.key then detail = name .. RS .. extra.key end
  else
    store_plain(base .. ':stream', base .. ':job:' .. id, id, name, data, opts)
    call.startable = call.startable + 1
  end
  events.note(call.lines, 'added', id, detail)
  if delayed then events.note(call.lines, 'delayed', id) end
end
function add.one(base, job, call)
  local id, extra = job.id, job.extra
  local status, owner, first = in_the_way(base, id, extra, call, job.name, job.data)
  if status then return owner, status end
  if id == '' then
    local first, ids = allocate(base, 1, nil, redis.call('HGET', base .. ':meta', 'numeric_ids') == '1')
    id = ids and ids[1] or first
  end
  store(base, id, job.name, job.data, job.opts, extra, call, first)
  return id, 'added'
end
function add.check_mode(mode, n, extras)
  if not mode then return end
  for i = 1, n do
    local key = extras[i] and extras[i].key
    if (mode == 'keyed') ~= (key ~= nil) then
      fail('INCOMPATIBLE', 'the queue is of mode ' .. mode .. ', and job ' .. i .. ' of this call has '
        .. (key and 'a key' or 'no key'))
    end
  end
end
local function add_step(base, jobs, from, to, first, ids, nth, how, call, outcomes)
  local args, extras, known = jobs.args, jobs.extras, how.known
  local counter, text_of = tonumber(first), counting()
  local stream, prefix, added = base .. ':stream', base .. ':job:', nil
  for i = from, to do
    local at = jobs.from + (i - 1) * FIELDS
    local own, extra = args[at + 1], extras[i]
    local id = own
    if own == '' then
      nth = nth + 1
      id = ids and ids[nth] or text_of(counter + nth - 1)
    end
    if own == '' and not extra and not known then
      local name = args[at + 2]
      store_plain(stream, prefix .. id, id, name, args[at + 3], args[at + 4])
      call.startable = call.startable + 1
      added = added or events.line(call.lines, 'added')
      local k = #added
      added[k + 1], added[k + 2] = id, name
    elseif not (known and known[i]) then
      local status, owner, leader
      local alone = own == '' and not (extra and extra.dedup)    -- a generated id is free
      if not (how.new or alone) then
        status, owner, leader = in_the_way(base, own, extra, call, args[at + 2], args[at + 3])
      end
      if status then
        local k = #outcomes
        outcomes[k + 1], outcomes[k + 2], outcomes[k + 3] = i, status, owner
        if not how.quiet then events.note(call.lines, 'duplicate', owner, extra and extra.dedup and extra.dedup.id) end
      else
        store(base, id, args[at + 2], args[at + 3], args[at + 4], extra, call, leader)
        if leader then outcomes[#outcomes + 1], outcomes[#outcomes + 2], outcomes[#outcomes + 3] = i, 'held', id end
      end
    end
  end
  return nth
end
local function release_ids(base, first, reserved, used)
  if first == '' or used == reserved then return end
  if redis.call('GET', base .. ':id') == digits(first + reserved - 1) then
    redis.call('INCRBY', base .. ':id', used - reserved)
  end
end
function add.all(base, jobs, how)
  local args, n, extras = jobs.args, jobs.n, jobs.extras
  local call, outcomes = {now = clock.now(), lines = {}, startable = 0, many = n >= MANY}, {}
  local meta = redis.call('HMGET', base .. ':meta', 'paused', 'numeric_ids', 'mode', 'incarnation', 'limits')
  incarnation.check(args[jobs.from + 1 + n * FIELDS], meta[4])
  add.check_mode(meta[3], n, extras)
  call.seen = next(extras) and queue_flags.at(base) or {paused = meta[1] == '1', limits = meta[5] == '1'}
  local first, ids = allocate(base, jobs.generated, jobs.numeric, meta[2] == '1')
  if not how.budget then
    add_step(base, jobs, 1, n, first, ids, 0, how, call, outcomes)
    return call, first, ids, outcomes, n
  end
  local is_costly, last, used = jobs.deduplicates or keyed.is_costly(call.seen), 0, 0
  repeat
    local from = last + 1
    last = math.min(last + (is_costly and COSTLY_STEP or STEP), n)
    used = add_step(base, jobs, from, last, first, ids, used, how, call, outcomes)
    if last < n then keyed.review(base, call) end    -- its time counts too
  until last == n or budget.has_added_enough(how.budget)
  release_ids(base, first, jobs.generated, used)
  return call, first, ids, outcomes, last
end
request.register('addJob', function(base, args)
  local how = #args > STEP * FIELDS and {budget = budget.new()} or NOTHING
  local call, first, ids, outcomes, added = add.all(base, add.parse(args, 3), how)
  wakeup.finish(base, call)
  return {call.now, first, ids or {}, outcomes, added}
end)
end
local schedulers
do
schedulers = {}
do
  local PATROL_MS = 60000
  local BEHIND_MS = 200
  local LATE_MS = 1000
  local PROMPT_MS = 5000           -- how much later than promised a process may call
  local FIRING_MS = 90000          -- how long a process counts as present after it received something to fire
  local MOST_DUE = 100
  local MOST_FIRE_TIMES = 100
  local ENDED = '+inf'
  local TEMPLATE = {'spec', 'limit', 'overlap', 'name', 'data', 'opts', 'extra', 'wait'}
  local function unpacked(extra)
    return add.extra(extra)
  end
  local function mode_of(base)
    return redis.call('HGET', base .. ':meta', 'mode')
  end
  local function key_of(base, id)
    return base .. ':scheduler:' .. id
  end
  schedulers.key_of = key_of
  local function due_at(base, rank)
    local found = redis.call('ZRANGE', base .. ':schedules', rank, rank, 'WITHSCORES')
    return found[2] and found[2] ~= 'inf' and tonumber(found[2]) or nil
  end
  function schedulers.next(base)
    return due_at(base, 0)
  end
  local function next_of(base, id)
    local score = redis.call('ZSCORE', base .. ':schedules', id)
    if not score then return nil end
    return score == 'inf' and '' or digits(tonumber(score))
  end
  schedulers.next_of = next_of
  local function take_role(base, process, now, due, first)
    local timer = base .. ':schedules_timer'
    local found = redis.call('HMGET', timer, 'first', 'first_by', 'second', 'second_by', 'since', 'until')
    local function free(holder, by)
      return not holder or holder == process or now > tonumber(by) + LATE_MS or tonumber(by) > now + 2 * PATROL_MS
    end
    local promised = tonumber(found[6] or 0)
    local present = found[5] and now <= promised and promised <= now + 2 * FIRING_MS
    local since = present and math.min(now, tonumber(found[5])) or now
    local latest = now + PATROL_MS
    local role, late
    if first or free(found[1], found[2]) then
      role, late = 'first', 0
      if found[3] == process then redis.call('HDEL', timer, 'second', 'second_by') end
    elseif free(found[3], found[4]) then
      role, late = 'second', BEHIND_MS
    else
      return 0, latest, since
    end
    local at = math.min(math.max(due, now) + late, latest)
    redis.call('HSET', timer, role, process, role .. '_by', digits(at), 'since', digits(since), 'until',
      digits(due <= now and now + FIRING_MS or at + PROMPT_MS))
    return role == 'first' and 1 or 2, at, since
  end
  local function upsert(base, args)
    local process, id, rev, seen_next = args[3], args[4], args[5], args[6]
    local new_next = args[15]
    local score = new_next == '' and ENDED or digits(integer('next', new_next))
    if #args ~= 15 then fail('ARGUMENT', 'upsertScheduler takes 15 arguments, found ' .. #args) end
    local now, key = clock.now(), key_of(base, id)
    add.check_mode(mode_of(base), 1, {unpacked(args[13])})
    local stored_next = next_of(base, id)
    if not stored_next then redis.call('UNLINK', key) end
    if (stored_next and redis.call('HGET', key, 'rev') or '') ~= rev or (stored_next or '') ~= seen_next then
      return {'moved', now, 0}
    end
    local fields = {'rev', redis.call('HINCRBY', base .. ':meta', 'schedulers', 1)}
    for i, name in ipairs(TEMPLATE) do
      fields[#fields + 1] = name
      fields[#fields + 1] = args[6 + i]
    end
    if redis.call('HEXISTS', key, 'paused') == 1 then score = ENDED end
    redis.call('HSET', key, unpack(fields))
    redis.call('ZADD', base .. ':schedules', score, id)
    local due = schedulers.next(base)
    return {'ok', now, due and select(2, take_role(base, process, now, due, true)) or 0}
  end
  local function remove(base, args)
    local id, zset = args[3], base .. ':schedules'
    local removed = redis.call('ZREM', zset, id)
    redis.call('UNLINK', key_of(base, id))
    if removed == 1 and not exists(zset) then redis.call('UNLINK', base .. ':schedules_timer') end
    return removed
  end
  local function has_not_ended(base, id)
    if not id or id == '' then return false end
    local state = record.location(base, id)
    return state and state ~= 'completed' and state ~= 'failed'
  end
  local function after_end(overlap)
    local wait, last = string.match(overlap or '', '^a(%d+) ?(%d*)$')
    if wait then return tonumber(wait), tonumber(last) end
  end
  local function fire_time_after(wait, last, now)
    local fire_time = now + wait
    if last and fire_time > last then return nil end
    return fire_time
  end
  local function wait_for(base, id, job, call)
    redis.call('HSET', queue_flags.create(base, 'deduped', call.seen), job, SEP .. id)
  end
  local function wake_scheduler_runner(base)
    for _, consumer in ipairs(redis.call('ZREVRANGE', base .. ':alive', 0, 9)) do
      if wakeup.send(base, consumer, 's') then return end
    end
  end
  function dedup.reschedule(base, id, job, call)
    local stored = redis.pcall('HMGET', key_of(base, id), 'overlap', 'last_job', 'limit', 'fired', 'paused')
    local wait, last = after_end(stored[1])
    if not wait or stored[2] ~= job or stored[5] then return end
    if stored[3] ~= '' and tonumber(stored[4] or 0) >= tonumber(stored[3]) then return end
    local fire_time = fire_time_after(wait, last, call.now)
    if not fire_time then return end
    local moved = redis.call('ZADD', base .. ':schedules', 'XX', 'CH', digits(fire_time), id)
    if moved == 1 then wake_scheduler_runner(base) end
  end
  local function pause(base, args)
    local id = args[3]
    if not next_of(base, id) then return 0 end
    redis.call('HSET', key_of(base, id), 'paused', '1')
    redis.call('ZADD', base .. ':schedules', ENDED, id)
    return 1
  end
  local function resume(base, args)
    local process, id, key, now = args[3], args[4], key_of(base, args[4]), clock.now()
    local score = args[6] == '' and ENDED or digits(integer('next', args[6]))
    local stored = redis.call('HMGET', key, 'rev', 'paused', 'overlap', 'last_job')
    if not next_of(base, id) or not stored[2] or stored[1] ~= args[5] then return {'moved', now, 0} end
    redis.call('HDEL', key, 'paused')
    if after_end(stored[3]) and has_not_ended(base, stored[4]) then
      redis.call('HSET', queue_flags.create(base, 'deduped'), stored[4], SEP .. id)
      return {'ok', now, 0}
    end
    redis.call('ZADD', base .. ':schedules', score, id)
    local due = schedulers.next(base)
    return {'ok', now, due and select(2, take_role(base, process, now, due, true)) or 0}
  end
  local function fire_times_of(args, from, n, now, next_fire)
    local fire_times, last = {}, 0
    if n < 0 then fail('ARGUMENT', 'a number of fire times cannot be ' .. n) end
    for i = 1, n do
      local fire_time = integer('fire time', args[from + i - 1])
      if fire_time <= last then fail('ARGUMENT', 'fire times must ascend, found ' .. args[from + i - 1]) end
      fire_times[i], last = digits(fire_time), fire_time
    end
    if next_fire and next_fire <= last then fail('ARGUMENT', 'the next fire time must follow, found ' .. next_fire) end
    return last <= now and fire_times or nil
  end
  local function firings_of(args, now)
    local n, at, firings, total = integer('count', args[3]), 4, {}, 0
    if n < 1 or n > MOST_DUE then fail('ARGUMENT', 'count must be 1 to ' .. MOST_DUE .. ', found ' .. n) end
    for i = 1, n do
      local text, count = args[at + 3], integer('count', args[at + 5])
      local next_fire = text ~= '' and integer('next', text) or nil
      firings[i] = {id = args[at], rev = args[at + 1], seen = args[at + 2], next = next_fire,
        skipped = integer('skipped', args[at + 4]), fire_times = fire_times_of(args, at + 6, count, now, next_fire)}
      at, total = at + 6 + count, total + count
      if total > MOST_FIRE_TIMES then
        fail('ARGUMENT', 'a call fires up to ' .. MOST_FIRE_TIMES .. ' fire times, found ' .. total)
      end
    end
    if at ~= #args + 1 then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' schedulers') end
    return firings
  end
  local function spread(id, most)
    return tonumber(string.sub(redis.sha1hex(id), 1, 12), 16) % (most + 1)
  end
  local function add_job(base, id, template, call)
    local extra = template.extra
    if extra and extra.jitter and id ~= '' then
      local wanted = {}
      for name, value in pairs(extra) do wanted[name] = value end
      wanted.delay = (wanted.delay or 0) + spread(base .. id, extra.jitter)
      extra = wanted
    end
    local job = {id = id, name = template.name, data = template.data, opts = template.opts, extra = extra}
    local found, status = add.one(base, job, call)
    if status ~= 'added' then events.note(call.lines, 'duplicate', found, extra and extra.dedup and extra.dedup.id) end
    return found, status
  end
  local function read(base, id, mode)
    local flat, stored = redis.call('HGETALL', key_of(base, id)), {}
    for i = 1, #flat, 2 do stored[flat[i]] = flat[i + 1] end
    if not stored.rev then return {} end
    for _, name in ipairs(TEMPLATE) do
      if not stored[name] then fail('DAMAGED', 'scheduler ' .. id .. ' is stored without ' .. name) end
    end
    stored.extra = unpacked(stored.extra)
    add.check_mode(mode, 1, {stored.extra})
    return stored
  end
  local function fire_one(base, firing, stored, call, it)
    local id, key, fire_times = firing.id, key_of(base, firing.id), firing.fire_times
    local limit, fired, last_job = tonumber(stored.limit), tonumber(stored.fired or 0), stored.last_job or ''
    local last_fire, alone, next_fire = stored.last_slot or '', stored.overlap == '1', firing.next
    local busy, done = alone and has_not_ended(base, stored.triggered), #fire_times
    local wait, last = after_end(stored.overlap)
    if wait and has_not_ended(base, last_job) then    -- the scheduler was changed while its last job ran
      wait_for(base, id, last_job, call)
      redis.call('ZADD', base .. ':schedules', ENDED, id)
      return done
    end
    local before = fired
    if firing.skipped > 0 then events.note(call.lines, 'skipped', id, digits(firing.skipped) .. ' missed') end
    local skipped = firing.skipped + tonumber(stored.skipped or 0)
    for i, fire_time in ipairs(fire_times) do
      if limit and fired >= limit then break end
      if i > 1 and budget.is_spent(it) then
        done, next_fire = i - 1, tonumber(fire_time)
        break
      end
      local job, status = nil, 'overlap'
      if not (alone and (busy or has_not_ended(base, last_job))) then
        job, status = add_job(base, id .. '@' .. fire_time, stored, call)
      end
      if status == 'added' then
        last_job, last_fire, fired = job, fire_time, fired + 1
      else
        skipped = skipped + 1
        events.note(call.lines, 'skipped', id, fire_time .. ' ' .. status)
      end
    end
    redis.call('HSET', key, 'fired', fired, 'skipped', skipped, 'last_slot', last_fire, 'last_job', last_job)
    if wait and fired > before then
      wait_for(base, id, last_job, call)
      next_fire = nil
    elseif wait and next_fire then
      next_fire = fire_time_after(wait, last, call.now)
    end
    local over = not next_fire or (limit and fired >= limit)
    redis.call('ZADD', base .. ':schedules', over and ENDED or digits(next_fire), id)
    return done
  end
  local function fire(base, args)
    local now = clock.now()
    local firings, it, mode = firings_of(args, now), budget.new(), mode_of(base)
    local call, answer = queue_flags.call(base), {now}
    for i, firing in ipairs(firings) do
      if i > 1 and budget.is_spent(it) then break end
      local readable, stored = pcall(read, base, firing.id, mode)
      if not readable then
        answer[i + 1] = type(stored) == 'table' and stored.err or tostring(stored)
      elseif not firing.fire_times or stored.rev ~= firing.rev or next_of(base, firing.id) ~= firing.seen then
        answer[i + 1] = 'moved'
      else
        answer[i + 1] = fire_one(base, firing, stored, call, it)
      end
    end
    wakeup.finish(base, call)
    return answer
  end
  local function trigger(base, args)
    local stored = read(base, args[3], mode_of(base))
    if not stored.rev then return {} end
    local call = queue_flags.call(base)
    local id, status = add_job(base, '', stored, call)
    redis.call('HSET', key_of(base, args[3]), 'triggered', id)
    wakeup.finish(base, call)
    return {call.now, id, status, stored.name, stored.data, stored.opts}
  end
  local function rank_after(base, fire_time, id)
    if fire_time == '' then return 0 end
    local zset = base .. ':schedules'
    if tonumber(redis.call('ZSCORE', zset, id) or nil) == tonumber(fire_time) then
      return redis.call('ZRANK', zset, id) + 1
    end
    return redis.call('ZCOUNT', zset, '-inf', '(' .. fire_time)
  end
  local function due_rows(base, now, from)
    local rows = {}
    local ids = redis.call('ZRANGE', base .. ':schedules', from, from + MOST_DUE - 1, 'WITHSCORES')
    for i = 1, #ids, 2 do
      if ids[i + 1] == 'inf' or tonumber(ids[i + 1]) > now then break end
      local spec = redis.pcall('HMGET', key_of(base, ids[i]), 'rev', 'spec', 'wait')
      rows[#rows + 1] = {ids[i], spec[1] or '', digits(tonumber(ids[i + 1])), spec[2] or '', spec[3] or ''}
    end
    return rows
  end
  register('takeSchedules', function(base, args)
    local now, spread = clock.now(), args[4] ~= '' and integer('spread', args[4]) or nil
    if args[2] ~= '' then integer('fire time', args[2]) end
    local from = rank_after(base, args[2], args[3])
    local due = due_at(base, from)
    if not due then return {now, 0, 0, {}, now} end
    local role, at, since = take_role(base, args[1], now, due, false)
    if due > now then return {now, role, at, {}, since} end
    if spread and role ~= 1 then
      local others = redis.call('ZCOUNT', base .. ':schedules', '-inf', now) - from - MOST_DUE
      if others > 0 then from = from + spread % (others + 1) end
    end
    return {now, role, at, due_rows(base, now, from), since}
  end, {'allow-oom'})
  register('leaveSchedules', function(base, args)
    local timer = base .. ':schedules_timer'
    local found = redis.call('HMGET', timer, 'first', 'second')
    if found[1] == args[1] then redis.call('HDEL', timer, 'first', 'first_by') end
    if found[2] == args[1] then redis.call('HDEL', timer, 'second', 'second_by') end
    if (found[1] or found[2]) and (not found[1] or found[1] == args[1]) and (not found[2] or found[2] == args[1]) then
      redis.call('HSET', timer, 'until', digits(clock.now()))
    end
    return 'ok'
  end, {'allow-oom'})
  request.register('upsertScheduler', upsert)
  request.register('removeScheduler', remove, {'allow-oom'})
  request.register('pauseScheduler', pause, {'allow-oom'})
  request.register('resumeScheduler', resume, {'allow-oom'})
  request.register('fireSchedulers', fire)
  request.register('triggerScheduler', trigger)
end
end
do
do
  local PAGE = 20
  register('listSchedulers', function(base, args)
    local reply, ids = redis.call('ZSCAN', base .. ':schedules', integer('cursor', args[1]), 'COUNT', 100), {}
    for i = 1, #reply[2], 2 do ids[#ids + 1] = reply[2][i] end
    return {reply[1] == '0' and '' or reply[1], ids}
  end, {'no-writes'})
  register('getSchedulers', function(base, args)
    local it = budget.of_answer()
    if #args > PAGE then fail('ARGUMENT', 'at most ' .. PAGE .. ' schedulers a call, found ' .. #args) end
    local found = {}
    for i, id in ipairs(args) do
      if i > 1 and budget.is_spent(it) then break end
      local next_fire = schedulers.next_of(base, id)
      local flat = next_fire and redis.call('HGETALL', schedulers.key_of(base, id))
      found[i] = flat and {next_fire, flat} or {}
      budget.count_record(it, flat or {})
    end
    return {clock.now(), found}
  end, {'no-writes'})
end
end
local claim
do
claim = {FIELDS = 7}
local FIRST_STEP = 8
local LARGEST_STEP = 64
local LARGEST_COSTLY_STEP = 8
local REFUSED_BYTES = 4096
local FIELDS = claim.FIELDS
local PROGRESS = 4               -- position of the progress in a history; it may be as large as the data
local TURNS = {'stream', 'lifo', 'ready'}
local read = {}
function read.i(key)
  local job = redis.pcall('HMGET', key, 'name', 'data')
  local name, data = job[1], job[2]
  if name and data then return name, data, false, '1', false end
end
function read.o(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts')
  local name, data = job[1], job[2]
  if name and data then return name, data, job[3], '1', false end
end
function read.h(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'failures', 'stalls', 'added', 'progress',
    'route', 'letter')
  if not (job[1] and job[2]) then return nil end
  local before = job[4]
  local fence = before and digits(string.match(before, '^%d+') + 1) or '1'
  return job[1], job[2], job[3], fence, {job[5], job[6], job[7], job[8], job[9], job[10]}, before
end
function read.w(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'claim', 'added', 'route', 'letter')
  if not (job[1] and job[2]) then return nil end
  if job[4] and job[4] ~= '0 0 0' then return read.h(key) end
  return job[1], job[2], job[3], '1', {false, false, job[5], false, job[6], job[7]}
end
function read.fi(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'route')
  if not (job[1] and job[2]) then return nil end
  return job[1], job[2], false, '1', {job[3]}
end
function read.fo(key)
  local job = redis.pcall('HMGET', key, 'name', 'data', 'opts', 'route')
  if not (job[1] and job[2]) then return nil end
  return job[1], job[2], job[3], '1', {job[4]}
end
local function lease_of(opts, lock)
  if not string.find(opts, '\161l', 1, true) then return lock end
  local readable, options = pcall(cmsgpack.unpack, opts)
  local own = readable and type(options) == 'table' and tonumber(options.l)
  return own and digits(own) or lock, own
end
local function put(out, id, entry, name, data, opts, fence, history)
  local at = out.n * FIELDS
  out.n = out.n + 1
  out[at + 1], out[at + 2], out[at + 3], out[at + 4] = id, entry, name, data
  out[at + 5], out[at + 6], out[at + 7] = opts, fence, history
end
local function start(key, reader, id, entry, order, first, call, out)
  local name, data, opts, fence, history = reader(key)
  if not name then return nil end
  local claimed = first
  if opts or order or fence ~= '1' then
    local lease, own = string.match(first, '%d+$'), nil
    if opts then lease, own = lease_of(opts, lease) end
    if own and own < call.shortest then call.shortest = own end
    claimed = fence .. string.match(first, ' %d+ ') .. lease
    if order then claimed = claimed .. ' ' .. order end
  end
  redis.call('HSET', key, 'place', 'active ' .. entry, 'claim', claimed)
  put(out, id, entry, name, data, opts, fence, history)
  return #data + #(history and history[PROGRESS] or '')
end
local function expired_among(base, ids, now, seen)
  local key = base .. ':expiry'
  if #ids == 0 or not seen.expiry then return nil end
  local expired = {}
  for i, instant in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
    if instant and tonumber(instant) <= now then expired[ids[i]] = true end
  end
  redis.call('ZREM', key, unpack(ids))
  return expired
end
local function refuse(base, id, entry, key, expired, call)
  if key then
    keyed.release(base, {key}, call)
    keyed.refund(base, id, key, call)
  end
  local kind = redis.call('TYPE', base .. ':job:' .. id).ok
  if kind == 'hash' then
    finish.fail(base, id, entry, expired and 'expired' or 'malformed', call)
  else
    record.lost(base, id, call)
    events.note(call.lines, 'dropped', id, 'missing')
  end
end
local function start_batch(base, batch, call, out)
  local ids, whats, orders, keys = batch.ids, batch.whats, batch.orders, batch.keys
  local expired, gone, bytes = expired_among(base, ids, call.now, call.seen), {}, 0
  local first, posted = '1 ' .. digits(call.now) .. ' ' .. digits(call.lock), call.seen.posted or 0
  local touched, usual, prefix = call.seen.touched, read[batch.what] or read.h, base .. ':job:'
  local line
  for i = 1, #ids do
    local id, entry = ids[i], batch.entries[i]
    local late = expired and expired[id]
    local reader = touched and read.h or (whats and read[whats[i]]) or usual
    local size = not late and start(prefix .. id, reader, id, entry, orders and orders[i], first, call, out)
    if size then
      line = line or events.line(call.lines, 'active')
      line[#line + 1] = id
      bytes = bytes + size
    else
      gone[#gone + 1] = string.sub(entry, 2)
      bytes = bytes + REFUSED_BYTES
      refuse(base, id, entry, keys and keys[i], late, call)
    end
  end
  if #gone > 0 then entries.drop(entries.stream_of(base, batch.entries[1]), gone) end
  return bytes + (call.seen.posted or 0) - posted
end
local function read_new(base, consumer, count)
  local stream = base .. ':stream'
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', digits(count), 'STREAMS', stream, '>')
  if reply and reply.err then
    entries.ensure_group(stream)
    reply = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  end
  return reply and reply[1][2] or {}
end
local function enter_active_stream(base, consumer, ids, keys)
  local stream, made, prefix, n = base .. ':lane', {}, keys and 'k' or 'l', #ids
  local command = {'XCLAIM', stream, GROUP, consumer, '0'}
  for i = 1, n do
    local raw = redis.call('XADD', stream, '*', keys and 'k' .. keys[i] or 'h', ids[i])
    made[i], command[i + 5] = prefix .. raw, raw
  end
  command[n + 6], command[n + 7], command[n + 8], command[n + 9] = 'FORCE', 'JUSTID', 'LASTID', command[n + 5]
  local reply = redis.pcall(unpack(command))
  if reply.err then
    entries.restore_active_stream(base, '(' .. command[6])
    redis.call(unpack(command))
  end
  return made
end
local source = {}
function source.stream(base, consumer, count, call, out)
  local batch = {ids = {}, entries = {}, whats = {}}
  local ids, made, whats = batch.ids, batch.entries, batch.whats
  for i, entry in ipairs(read_new(base, consumer, count)) do
    local fields = entry[2]
    ids[i], made[i], whats[i] = fields[2], 's' .. entry[1], fields[1]
  end
  return #ids, start_batch(base, batch, call, out)
end
local function start_in_active_stream(base, consumer, batch, call, out)
  if #batch.ids == 0 then return 0, 0 end
  batch.entries = enter_active_stream(base, consumer, batch.ids, batch.keys)
  return #batch.ids, start_batch(base, batch, call, out)
end
function source.returned(base, consumer, count, call, out)
  local batch = {ids = {}, orders = {}}
  local popped = redis.call('ZPOPMIN', base .. ':returned', digits(count))
  for i = 1, #popped, 2 do
    batch.ids[#batch.ids + 1] = popped[i]
    batch.orders[#batch.orders + 1] = digits(tonumber(popped[i + 1]))
  end
  return start_in_active_stream(base, consumer, batch, call, out)
end
function source.lifo(base, consumer, count, call, out)
  local batch = {ids = {}, what = 'w'}
  local popped = redis.call('ZPOPMAX', base .. ':lifo', digits(count))
  for i = 1, #popped, 2 do batch.ids[#batch.ids + 1] = popped[i] end
  return start_in_active_stream(base, consumer, batch, call, out)
end
function source.prioritized(base, consumer, count, call, out)
  local batch = {ids = {}, what = 'w'}
  local popped = redis.call('ZPOPMIN', base .. ':prioritized', digits(count))
  for i = 1, #popped, 2 do batch.ids[#batch.ids + 1] = string.sub(popped[i], 17) end
  return start_in_active_stream(base, consumer, batch, call, out)
end
function source.ready(base, consumer, count, call, out)
  keyed.review(base, call)
  local batch = keyed_claim.pop(base, count, call)
  local found, bytes = start_in_active_stream(base, consumer, batch, call, out)
  return call.touched and count or found, bytes
end
local usual_bytes = 0
local function take_from(name, base, consumer, most, call, out)
  local it, step = call.budget, FIRST_STEP
  if usual_bytes * step > it.most then step = math.max(1, math.floor(it.most / usual_bytes)) end
  local largest = name == 'ready' and keyed.is_costly(call.seen) and LARGEST_COSTLY_STEP or LARGEST_STEP
  while true do
    local wanted = math.min(step, most - out.n)
    local found, size = source[name](base, consumer, wanted, call, out)
    it.bytes = it.bytes + size
    if found < wanted then return true end
    if out.n >= most or budget.has_claimed_enough(it) then return false end
    step = math.min(step * 2, largest, math.ceil((it.most - it.bytes) * found / math.max(1, size)))
  end
end
local function is_unfinished(slots, call, out)
  return out.n < slots and (out.n == 0 or not budget.has_claimed_enough(call.budget))
end
local function take_turns(base, consumer, slots, call, out)
  local last, names, at, first = call.seen.turn, {}, 1, nil
  for i = last, last + 2 do
    local turn = i % #TURNS + 1
    if turn == 1 or call.seen[TURNS[turn]] then names[#names + 1] = turn end
  end
  repeat
    if at > #names then at = 1 end
    local before = out.n
    local share = math.ceil((slots - before) / #names)
    local dry = take_from(TURNS[names[at]], base, consumer, math.min(slots, before + share), call, out)
    if out.n > before then first = first or names[at] end
    if dry then table.remove(names, at) else at = at + 1 end
  until #names == 0 or not is_unfinished(slots, call, out)
  if first and first ~= last then redis.call('HSET', base .. ':meta', 'turn', first) end
end
function claim.take(base, consumer, slots, call)
  local out, seen, it = {n = 0}, call.seen, call.budget
  if seen.returned then take_from('returned', base, consumer, slots, call, out) end
  if not seen.returned or is_unfinished(slots, call, out) then
    if seen.lifo or seen.ready then
      take_turns(base, consumer, slots, call, out)
    else
      take_from('stream', base, consumer, slots, call, out)
    end
  end
  if seen.prioritized and not call.behind and is_unfinished(slots, call, out) then
    take_from('prioritized', base, consumer, slots, call, out)
  end
  if out.n > 0 then usual_bytes = it.bytes / out.n end
  keyed.review(base, call)
  return out, it.spent and out.n < slots
end
function claim.reread(base, claimed)
  local out = {n = 0}
  for i = 1, #claimed, 2 do
    local id, entry = claimed[i], claimed[i + 1]
    local key = base .. ':job:' .. id
    if redis.call('HGET', key, 'place') == 'active ' .. entry then
      local name, data, opts, _, history, last = read.h(key)
      put(out, id, entry, name, data, opts, string.match(last, '^%d+'), history)
    end
  end
  return out
end
end
local settle
do
settle = {fenced = true}
local FIELDS = 5
local HEAD = 8
local MAX_BATCH = 1000
local STEP, COSTLY_STEP = 128, 16
local SMALL = 8
local STREAM, KEYED = 115, 107   -- the first bytes of the tokens "s…" and "k…"
local function run_at(args, i)
  local at = HEAD + (i - 1) * FIELDS
  return args[at + 1], args[at + 2], args[at + 3], args[at + 4], args[at + 5]
end
local check = {}
function check.c(option) finish.check_policy(option) end
function check.f(option) finish.check_policy(string.match(option, '^([^;]*);[a-z_]+;') or '?') end
function check.r(option) integer('delay', string.match(option, '^(%d+) ')) end
function check.d(option) integer('delay', option) end
check.l = check.d
function check.b() end
local function split(args, i, entry)
  local token, key = string.match(entry, '^(k%d+%-%d+) (.+)$')
  if not token then fail('ARGUMENT', 'not a lease token: ' .. entry) end
  args[HEAD + (i - 1) * FIELDS + 3] = token
  args.keys = args.keys or {}
  args.keys[i] = key
end
local function parse(args)
  local n = integer('count', args[HEAD])
  local over = #args - HEAD - n * FIELDS    -- 1 with the incarnation
  if n < 0 or n > MAX_BATCH or over < 0 or over > 1 then
    fail('ARGUMENT', 'the argument list does not hold ' .. args[HEAD] .. ' runs')
  end
  if not string.find(args[HEAD - 1], '^%d+ %d+$') then
    fail('ARGUMENT', 'ran must be "<ms> <ms>", found ' .. args[HEAD - 1])
  end
  local at = HEAD
  for i = 1, n do
    local code, entry, option = args[at + 1], args[at + 3], args[at + 5]
    if not check[code] then fail('ARGUMENT', 'unknown outcome ' .. code) end
    if option ~= '' or code ~= 'c' then
      check[code](option)
      if code ~= 'c' then args.has_others = true end
    end
    if not string.find(entry, '^[sl]%d+%-%d+$') then
      if not string.find(entry, '^k%d+%-%d+$') then split(args, i, entry) end
      args.has_keys = true
    end
    at = at + FIELDS
  end
  return n
end
function settle.claimed_last(base, consumer)
  local kept, tokens = redis.call('GET', base .. ':call:' .. consumer), {}
  local readable, answer = pcall(cmsgpack.unpack, kept and string.match(kept, '^%d+ (.*)$') or '')
  local claimed = readable and type(answer) == 'table' and answer[2] or {}
  for i = 2, #claimed, 2 do tokens[#tokens + 1] = claimed[i] end
  return tokens
end
local function release_entries(base, args, first, last, call)
  local stream, active, of_keys, keys, known = {}, {}, {}, {}, args.keys or {}
  for i = first, last do
    local entry = args[HEAD + (i - 1) * FIELDS + 3]
    local prefix, raw = string.byte(entry), string.sub(entry, 2)
    if prefix == STREAM then
      stream[#stream + 1] = raw
    else
      active[#active + 1] = raw
      if prefix == KEYED then of_keys[#of_keys + 1], keys[#keys + 1] = raw, known[i] end
    end
  end
  local acknowledged = entries.acknowledge(base .. ':stream', stream) + entries.acknowledge(base .. ':lane', active)
  local valid = acknowledged == last - first + 1
  if not valid or #keys < #of_keys then keys = of_keys[1] and entries.keys_of(base .. ':lane', of_keys) or {} end
  entries.delete_acknowledged(base .. ':stream', stream, not valid)
  entries.delete_acknowledged(base .. ':lane', active, not valid or call.seen.lane_lost)
  if keys[1] then keyed.release(base, keys, call) end
  return valid
end
local function disown(base, args, first, last)
  for i = first, last do
    local at = HEAD + (i - 1) * FIELDS + 3
    local entry = args[at]
    local holder = entries.consumer_of(base, entry)
    if holder and holder ~= args[3] then args[at] = string.sub(entry, 1, 1) .. '0-0' end
  end
end
local function release(base, args, first, last, call)
  local refused, settled = {}, {}
  if release_entries(base, args, first, last, call) or not settle.fenced then return refused end
  for i = first, last do
    local _, id, entry = run_at(args, i)
    local location = redis.call('HGET', base .. ':job:' .. id, 'place')
    if location ~= 'active ' .. entry or settled[entry] then refused[i] = location and 'stale' or 'missing' end
    settled[entry] = true
  end
  return refused
end
local function undone(key, written, fields)
  if written < fields then return nil end
  redis.call('UNLINK', key)
  return 'missing'
end
local apply = {}
function apply.c(base, now, call, done, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local written = redis.call('HSET', key, 'place', 'completed ' .. entry, 'ended', now, 'result', payload)
  if written == 3 then return undone(key, written, 3) end
  finish.note(done, 'completed', option, id, payload)
  local line = events.line(call.lines, 'completed')
  line[#line + 1] = id
end
function apply.f(base, now, call, done, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local policy, cause, reason = string.match(option, '^([^;]*);([a-z_]+);(.*)$')
  local refused = undone(key,
    redis.call('HSET', key, 'place', 'failed ' .. entry, 'ended', now, 'error', payload, 'reason', reason,
      'cause', cause), 5)
  if refused then return refused end
  redis.call('HINCRBY', key, 'failures', 1)
  finish.note(done, 'failed', policy, id, payload)
  events.note(call.lines, 'failed', id, reason)
  dead_letters.move(base, id, cause, reason, call)
end
local function put_off(base, id, entry, delay, call)
  local location = scheduled.push(base, id, call.now + delay, call)
  local route = string.sub(entry, 1, 1) == 'k' and keyed.route_of(base, id)
  if route then keyed.rest(base, id, route.key, call) end
  return location
end
function apply.r(base, _, call, _, id, entry, payload, option)
  local key = base .. ':job:' .. id
  if not exists(key) then return 'missing' end
  local delay, reason = string.match(option, '^(%d+) (.*)$')
  record.keep_added(base, id, entry)
  redis.call('HINCRBY', key, 'failures', 1)
  local location = delay == '0' and routes.enter_again(base, id, call) or put_off(base, id, entry, delay, call)
  redis.call('HSET', key, 'place', location, 'error', payload, 'reason', reason)
  events.note(call.lines, 'retrying', id, option)
end
function apply.d(base, _, call, _, id, entry, reason, option)
  local key = base .. ':job:' .. id
  if not exists(key) then return 'missing' end
  record.keep_added(base, id, entry)
  redis.call('HSET', key, 'place', put_off(base, id, entry, option, call))
  if reason ~= '' then redis.call('HSET', key, 'reason', reason) end
  events.note(call.lines, 'delayed', id)
end
function apply.b(base, _, call, _, id, entry)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  returned.push(base, id, entry, call)
  events.note(call.lines, 'returned', id)
end
function apply.l(base, _, call, _, id, entry, _, option)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  local route = string.sub(entry, 1, 1) == 'k' and keyed.route_of(base, id)
  local at = call.now + option
  if route then keyed.pause(base, route.key, at, call) else limits.close_gate(base, at, call) end
  returned.push(base, id, entry, call)
  events.note(call.lines, 'limited', id, option)
end
local function after_revocation(base, id, code, option)
  if code == 'c' then return code, option end
  local policy = code == 'f' and string.match(option, '^[^;]*') or finish.own_policy(base, id)
  return 'f', policy .. ';revoked;' .. finish.reason_of(base, id, 'revoked')
end
local function settle_step(base, args, first, last, done, answer, call)
  if call.verify then disown(base, args, first, last) end
  local refused = release(base, args, first, last, call)
  local stamp, revoking = digits(call.now), call.seen.revoking and base .. ':revoking'
  for i = first, last do
    if not refused[i] then
      local code, id, entry, payload, option = run_at(args, i)
      if revoking and redis.call('SISMEMBER', revoking, id) == 1 then
        code, option = after_revocation(base, id, code, option)
      end
      refused[i] = apply[code](base, stamp, call, done, id, entry, payload, option)
    end
  end
  for i, status in pairs(refused) do
    if status == 'missing' then record.lost(base, (select(2, run_at(args, i))), call) end
    answer[#answer + 1] = i
    answer[#answer + 1] = status
    stopping.finish(base, args[3], {(select(3, run_at(args, i)))}, call)
  end
end
local function settle_runs(base, args, n, call)
  if n == 0 then return {}, 0 end
  local is_costly = args.has_others or (args.has_keys and keyed.is_costly(call.seen))
  local step = is_costly and COSTLY_STEP or STEP
  local answer, done, last = {}, {}, 0
  while true do
    local first = last + 1
    last = math.min(last + step, n)
    settle_step(base, args, first, last, done, answer, call)
    if last == n then break end
    keyed.review(base, call)
    if budget.has_settled_enough(call.budget) then break end
  end
  local completed, failed = string.match(args[HEAD - 1], '^(%d+) (%d+)$')
  finish.store(base, done, call, {completed = tonumber(completed), failed = tonumber(failed)})
  return answer, last
end
local function pass_on(base, startable, call)
  if startable == 0 and not (call.seen.limits and exists(base .. ':idle')) then return end
  local ready = locations.ready_count(base)
  wakeup.wake(base, call.seen.limits and limits.allowance(base, ready, call) or math.min(startable, ready))
end
local function claim_or_wait(base, caller, call)
  local consumer, slots, seen = caller.consumer, caller.slots, call.seen
  scheduled.promote(base, call)
  if seen.paused then return {n = 0}, wakeup.settle_down(base, caller, slots, call) end
  local allowed = limits.allowance(base, slots, call)
  if slots == 0 then
    wakeup.leave(base, consumer, call)
    wakeup.wake(base, math.max(call.startable, locations.ready_count(base)))
    return {n = 0}, 0
  end
  local startable, jobs, more = call.startable, {n = 0}, false
  if allowed > 0 then jobs, more = claim.take(base, consumer, allowed, call) end
  limits.started(base, jobs.n, call)
  if seen.limits and jobs.n == allowed then limits.allowance(base, slots, call) end
  if call.behind and jobs.n < slots then more = true end
  local due = call.now
  if more then
    redis.call('ZREM', base .. ':idle', consumer)    -- it calls again immediately
  else
    due = wakeup.settle_down(base, caller, slots - jobs.n, call)
  end
  if more or jobs.n == slots then pass_on(base, math.max(startable, call.startable), call) end
  return jobs, due
end
local function note_lease(base, call)
  if call.shortest >= (call.seen.shortest_lease or math.huge) then return end
  redis.call('HSET', base .. ':meta', 'shortest_lease', digits(call.shortest))
end
local function first_call(base, args, unbroken)
  local flags = args[6]
  local caller = {consumer = args[3], slots = integer('slots', args[4]),
    subscribed = not string.find(flags, 'u', 1, true), registered = string.find(flags, 'i', 1, true)}
  local lock = integer('lock', args[5])
  local spent = budget.of_claim(caller.slots <= SMALL and #args <= HEAD + SMALL * FIELDS)
  local n = parse(args)
  local call = queue_flags.call(base)
  if caller.slots > 0 then incarnation.check(args[HEAD + n * FIELDS + 1], call.seen.incarnation) end
  call.lock, call.shortest, call.budget = lock, lock, spent
  call.verify = not unbroken or string.find(flags, 'v', 1, true)
  local refused, settled = settle_runs(base, args, n, call)
  limits.freed(settled, call)
  local jobs, due = claim_or_wait(base, caller, call)
  if jobs.n > 0 then note_lease(base, call) end
  keyed.review(base, call)
  local seen = call.seen
  if seen.limits or ((n > 0 or call.slept) and (seen.scheduled or seen.sleeping)) then
    wakeup.due_changed(base, caller.subscribed and due > 0 and caller.consumer, call)
  end
  events.write(base, call.lines, call.now)
  local claimed = {}
  for i = 1, jobs.n * claim.FIELDS, claim.FIELDS do
    local n = #claimed
    claimed[n + 1], claimed[n + 2] = jobs[i], jobs[i + 1]
  end
  request.remember(base, args[1], args[2], {refused, claimed, due, settled, not unbroken or nil}, request.WEEK_MS)
  return {call.now, refused, jobs, due, -1, (seen.posted and 1 or 0) + (unbroken and 0 or 2), call.past or 0,
    settled}
end
register('settleAndClaim', function(base, args)
  integer('request number', args[2])
  local kept, unbroken = request.replay(base, args[1], args[2])
  local answer
  if kept then
    local now, past = clock.now()
    local posted = (exists(base .. ':outbox') and 1 or 0) + (kept[5] and 2 or 0)
    answer = {now, kept[1], claim.reread(base, kept[2]), kept[3], -1, posted, past or 0, kept[4]}
  else
    answer = first_call(base, args, unbroken)
  end
  if string.find(args[6], 'e', 1, true) then answer[5] = wakeup.send(base, args[3], 'e') or -1 end
  return answer
end, {'allow-oom'})
end
local set_back
do
set_back = {}
local MOST = 1000                -- of each structure, as far as the budget goes
local PIECE = 100
local function move(key, now, moved, it)
  if budget.is_spent(it) then return end
  local found = redis.call('ZRANGEBYSCORE', key, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, MOST)
  for from = 1, #found, 2 * PIECE do
    local members = {}
    for i = from, math.min(from + 2 * PIECE - 1, #found), 2 do
      members[#members + 1], members[#members + 2] = digits(moved(tonumber(found[i + 1]))), found[i]
    end
    redis.call('ZADD', key, unpack(members))
    if budget.is_spent(it) then return end
  end
end
local function mend(base, by, call, it)
  local now = call.now
  local function earlier(instant) return math.max(now, instant - by) end
  local function at_present() return now end
  move(base .. ':alive', now, at_present, it)
  move(base .. ':stopping', now, earlier, it)
  move(base .. ':pauses', now, earlier, it)
  move(base .. ':sleeping', now, at_present, it)    -- the next claim computes when they may really start
  move(base .. ':expiry', now, earlier, it)
  move(base .. ':held', now, earlier, it)
  move(base .. ':completed', now, earlier, it)
  move(base .. ':failed', now, earlier, it)
  local gate = tonumber(redis.call('HGET', base .. ':limits', 'gate') or nil)
  if gate and gate > now then redis.call('HSET', base .. ':limits', 'gate', digits(earlier(gate))) end
end
function set_back.mend(base, call, it)
  local by = tonumber(redis.call('HGET', base .. ':meta', 'set_back') or nil)
  if not by then return end
  redis.call('HDEL', base .. ':meta', 'set_back')
  mend(base, by, call, it)
end
end
local lease
do
lease = {}
local RENEWED = 2
local FIRST_TOKEN = 6            -- the position of the first entry in the arguments of a renewal
local OF_STREAM = 115            -- the byte "s", the first of a token of `stream`
local MOST_ENDED = 20
local function server_of(now)
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return nil, nil end
  local id, uptime = string.match(info, 'run_id:(%w+)'), string.match(info, 'uptime_in_seconds:(%-?%d+)')
  return id, uptime and now - uptime * 1000
end
local function end_of_outage(seen, now, newcomer, server, started, before)
  if not newcomer then return now end
  if server and server == before then return nil end
  if started and started > seen then return math.min(started, now) end
  return now
end
function lease.sign_of_life(base, now, gap, newcomer)
  local meta = base .. ':meta'
  local known = redis.call('HMGET', meta, 'seen_at', 'settled_since', 'gap', 'away', 'server')
  local seen, since, away = tonumber(known[1] or nil), tonumber(known[2] or nil), tonumber(known[4] or nil)
  local limit, server, started = gap or tonumber(known[3] or nil), nil, nil
  if gap or newcomer then server, started = server_of(now) end
  if not seen or not since then
    since, away = now, 0         -- the queue is new
  elseif clock.is_ahead(seen, now) then
    redis.call('HINCRBY', meta, 'set_back', digits(seen - now))
  elseif limit and now - seen > limit then
    local ended = end_of_outage(seen, now, newcomer, server, started, known[5])
    if ended then
      local began = seen - since < limit and since - (away or 0) or seen
      since, away = ended, ended - began
    end
  end
  since, away = math.min(since, now), away or now
  redis.call('HSET', meta, 'seen_at', now, 'settled_since', since, 'away', away)
  if gap then redis.call('HSET', meta, 'gap', gap) end
  if server and server ~= known[5] then redis.call('HSET', meta, 'server', server) end
  return {settled = now - since, away = away}
end
function lease.counted(idle, outage)
  return idle - math.min(math.max(0, idle - outage.settled), outage.away)
end
local function report_alive(base, consumer, info, now)
  local key = base .. ':alive'
  local newcomer = redis.call('ZADD', key, digits(now), consumer) == 1
  lease.sign_of_life(base, now, nil, newcomer)
  if newcomer then redis.call('HSET', base .. ':workers', consumer, info) end
end
local function own(stream, consumer, raw)
  local first, last, held, found = raw[1], raw[1], {}, {}
  for _, id in ipairs(raw) do
    if entries.before(id, first) then first = id elseif entries.before(last, id) then last = id end
  end
  local most = 2 * #raw
  local rows = redis.pcall('XPENDING', stream, GROUP, first, last, most, consumer)
  if rows.err then return held end
  for _, row in ipairs(rows) do found[row[1]] = true end
  for _, id in ipairs(raw) do
    if not found[id] and #rows == most then
      found[id] = redis.call('XPENDING', stream, GROUP, id, id, 1, consumer)[1] ~= nil
    end
    if found[id] then held[#held + 1] = id end
  end
  return held
end
local function extend(stream, consumer, raw, received)
  local renewed = {}
  for from = 1, #raw, CHUNK do
    local command = {'XCLAIM', stream, GROUP, consumer, '0', unpack(raw, from, math.min(from + CHUNK - 1, #raw))}
    local n = #command
    if received then command[n + 1], command[n + 2], n = 'RETRYCOUNT', RENEWED, n + 2 end
    command[n + 1] = 'JUSTID'
    local reply = redis.pcall(unpack(command))
    if from == 1 and #raw <= CHUNK and not reply.err then return reply end
    for _, id in ipairs(reply.err and {} or reply) do renewed[#renewed + 1] = id end
  end
  return renewed
end
local function is_last_call(base, consumer, number)
  local kept = number ~= '0' and redis.call('GET', base .. ':call:' .. consumer)
  return kept and string.sub(kept, 1, #number + 1) == number .. ' '
end
local function by_stream(tokens, at, step)
  local waited, active = {}, {}
  for i = at, #tokens, step do
    local list = string.byte(tokens[i]) == OF_STREAM and waited or active
    list[#list + 1] = string.sub(tokens[i], 2)
  end
  return waited, active
end
local function renew_in_transit(base, consumer, number)
  if not is_last_call(base, consumer, number) then return end
  local waited, active = by_stream(settle.claimed_last(base, consumer), 1, 1)
  extend(base .. ':stream', consumer, waited, false)
  extend(base .. ':lane', consumer, active, false)
end
local function sort_out(base, args, renewed, revoking)
  local lost, revoked = {}, {}
  for i = FIRST_TOKEN, #args, 2 do
    local token = args[i]
    if not renewed[string.byte(token) == OF_STREAM][string.sub(token, 2)] then
      lost[#lost + 1] = token
    elseif revoking and redis.call('SISMEMBER', base .. ':revoking', args[i - 1]) == 1 then
      revoked[#revoked + 1] = token
    end
  end
  if lost[1] then stopping.renew(base, args[1], lost, clock.now()) end
  return {lost, revoked}
end
local function as_set(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end
register('renewLeases', function(base, args)
  integer('answered', args[3])
  integer('in_transit', args[4])
  local consumer, stream, lane = args[1], base .. ':stream', base .. ':lane'
  report_alive(base, consumer, args[2], clock.now())
  local waited, active = by_stream(args, FIRST_TOKEN, 2)
  local n = #waited + #active
  if n > 0 and not is_last_call(base, consumer, args[3]) then
    waited = waited[1] and own(stream, consumer, waited) or waited
    active = active[1] and own(lane, consumer, active) or active
  end
  waited, active = extend(stream, consumer, waited, true), extend(lane, consumer, active, true)
  renew_in_transit(base, consumer, args[4])
  local revoking = exists(base .. ':revoking')
  if not revoking and #waited + #active == n then return {{}, {}} end
  return sort_out(base, args, {[true] = as_set(waited), [false] = as_set(active)}, revoking)
end, {'allow-oom'})
register('endRuns', function(base, args)
  if #args > MOST_ENDED + 1 then fail('ARGUMENT', 'at most ' .. MOST_ENDED .. ' runs a call, found ' .. #args - 1) end
  if not exists(base .. ':stopping') then return 0 end
  local call, ended = queue_flags.call(base), {}
  for i = 2, #args do ended[i - 1] = args[i] end
  local count = stopping.finish(base, args[1], ended, call)
  if count > 0 then wakeup.finish(base, call) end
  return count
end, {'allow-oom'})
lease.RENEWED = RENEWED
end
local stalled
do
stalled = {}
local STEP = 100
local MOST_STEPS = 20
local TRIM_STEP = 200
local EXPIRE_STEP = 10
local SHORTEST_LEASE_MS = 1000
local POSTED_BYTES = 1048576
local FORGET_AFTER_MS = 300000
local MOST_UNDELIVERED = 20
local HEARD_OF_MS = 60000        -- by then every live worker has renewed; most renew every 20 seconds
local function pending(stream, from, consumer)
  local reply
  if consumer then
    reply = redis.pcall('XPENDING', stream, GROUP, from, '+', STEP, consumer)
  else
    reply = redis.pcall('XPENDING', stream, GROUP, from, '+', STEP)
  end
  return reply.err and {} or reply
end
local function is_enough(it, call)
  return keyed.has_touched_many(call) or (call.seen.posted or 0) > POSTED_BYTES or budget.is_spent(it)
end
local function mend_active_stream(base, lost, call, it)
  local active = base .. ':lane'
  if redis.pcall('XPENDING', active, GROUP, '-', '+', 1).err then
    local last = redis.call('XREVRANGE', active, '+', '-', 'COUNT', 1)[1]
    lost = last and last[1] or '-'
    entries.restore_active_stream(base, lost)
  end
  if not lost then return true end
  for _, row in ipairs(redis.call('XRANGE', active, '-', lost, 'COUNT', STEP)) do
    if is_enough(it, call) then return false end
    local id, entry = locations.give_up(base, active, row[1], call)
    if redis.call('HGET', base .. ':job:' .. id, 'place') == 'active ' .. entry then
      returned.push(base, id, entry, call)
      events.note(call.lines, 'returned', id)
    end
  end
  if redis.call('XRANGE', active, '-', lost, 'COUNT', 1)[1] then return false end
  redis.call('HDEL', base .. ':meta', 'lane_lost')
  return true
end
local function claim_of(base, id)
  local text = redis.call('HGET', base .. ':job:' .. id, 'claim')
  local started, lock = string.match(text or '', '^%d+ (%d+) (%d+)')
  return tonumber(started or 0), tonumber(lock or SHORTEST_LEASE_MS)
end
local function was_undelivered(base, row, entry, started, lock, now)
  local consumer, deliveries = row[2], row[4]
  if deliveries >= lease.RENEWED then return false end
  local seen = tonumber(redis.call('ZSCORE', base .. ':alive', consumer) or nil)
  if not seen or clock.is_ahead(seen, now) or seen - started < lock / 2 then return false end
  for _, token in ipairs(settle.claimed_last(base, consumer)) do
    if token == entry then return true end
  end
  return false
end
local function fail_or_return(base, id, entry, cause, call, report, list)
  if redis.call('SISMEMBER', base .. ':revoking', id) == 1 then cause = 'revoked' end
  if cause then
    finish.fail(base, id, entry, cause, call)
    report.failed[#report.failed + 1] = id
  else
    returned.push(base, id, entry, call)
    if list then list[#list + 1] = id end
  end
end
local function recover(base, id, entry, undelivered, max_stalled, call, report)
  local key = base .. ':job:' .. id
  if undelivered then
    local count = redis.call('HINCRBY', key, 'undelivered', 1)
    events.note(call.lines, 'returned', id)
    fail_or_return(base, id, entry, count > MOST_UNDELIVERED and 'undelivered', call, report)
  else
    local stalls = redis.call('HINCRBY', key, 'stalls', 1)
    events.note(call.lines, 'stalled', id, digits(stalls))
    fail_or_return(base, id, entry, stalls > max_stalled and 'stalled', call, report, report.recovered)
  end
end
local function sweep_entry(base, stream, row, idle, max_stalled, call, report)
  local raw = row[1]
  local id, _, entry = entries.find(stream, raw)
  local location = id and redis.pcall('HGET', base .. ':job:' .. id, 'place')
  local active = id and location == 'active ' .. entry
  local undelivered = false
  if active then
    local started, lock = claim_of(base, id)
    if idle < lock then return end
    undelivered = was_undelivered(base, row, entry, started, lock, call.now)
  end
  locations.give_up(base, stream, raw, call)
  if active then
    recover(base, id, entry, undelivered, max_stalled, call, report)
  elseif id and location == 'waiting ' .. entry then
    returned.push(base, id, entry, call)
    events.note(call.lines, 'returned', id)
    report.recovered[#report.recovered + 1] = id
  else
    if id and not exists(base .. ':job:' .. id) then record.lost(base, id, call) end
    events.note(call.lines, 'dropped', id or '', 'missing')
  end
end
local function sweep_step(base, stream, from, outage, max_stalled, call, report, it)
  local rows, shortest = pending(stream, from), call.seen.shortest_lease or SHORTEST_LEASE_MS
  for _, row in ipairs(rows) do
    local idle = row[3] >= shortest and lease.counted(row[3], outage) or 0
    if idle >= shortest then
      sweep_entry(base, stream, row, idle, max_stalled, call, report)
      if is_enough(it, call) then return '(' .. row[1] end
    elseif row[3] == 0 then
      redis.pcall('XCLAIM', stream, GROUP, row[2], 0, row[1], 'JUSTID')
    end
  end
  return #rows == STEP and '(' .. rows[STEP][1] or ''
end
local function sweep_stream(base, stream, from, outage, max_stalled, call, report, it)
  local steps = 0
  repeat
    from = sweep_step(base, stream, from, outage, max_stalled, call, report, it)
    steps = steps + 1
  until from == '' or steps == MOST_STEPS or is_enough(it, call)
  return from
end
local function forget_dead(base, outage, call)
  if outage.settled < HEARD_OF_MS then return end
  local dead = redis.call('ZRANGEBYSCORE', base .. ':alive', '-inf', call.now - FORGET_AFTER_MS, 'LIMIT', 0, STEP)
  for _, consumer in ipairs(dead) do
    if #pending(base .. ':stream', '-', consumer) == 0 and #pending(base .. ':lane', '-', consumer) == 0 then
      stalled.forget(base, consumer, call)
    end
  end
end
function stalled.forget(base, consumer, call)
  redis.pcall('XGROUP', 'DELCONSUMER', base .. ':stream', GROUP, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', base .. ':lane', GROUP, consumer)
  redis.call('ZREM', base .. ':alive', consumer)
  redis.call('HDEL', base .. ':workers', consumer)
  wakeup.leave(base, consumer, call)
end
local function expire(base, id, later, call)
  finish.fail(base, id, locations.leave(base, id, call), 'expired', call, later)
  if #later < 2 then return later end
  local last = table.remove(later)
  finish.store(base, later, call)
  return {last, [last.state .. last.policy] = last}
end
local function expire_waiting(base, call, it)
  local ids = redis.call('ZRANGEBYSCORE', base .. ':expiry', '-inf', call.now, 'LIMIT', 0, STEP)
  local later, over = {}, #ids < STEP
  for i, id in ipairs(ids) do
    if i > 1 and is_enough(it, call) then
      over = false
      break
    end
    if locations.is_unstarted((record.location(base, id))) then
      later = expire(base, id, later, call)
    else
      redis.call('ZREM', base .. ':expiry', id)
    end
  end
  finish.store(base, later, call)
  return over
end
local function housekeeping(base, outage, call, it)
  repeat
    if is_enough(it, call) then return false end
  until finish.release_held(base, call.now, TRIM_STEP) < TRIM_STEP
  repeat
    if is_enough(it, call) then return false end
  until finish.trim_all(base, call.now, call.seen, TRIM_STEP) < TRIM_STEP
  repeat
    if is_enough(it, call) then return false end
  until not call.seen.expiry or expire_waiting(base, call, it)
  local function counted(idle) return lease.counted(idle, outage) end
  repeat
    if is_enough(it, call) then return false end
  until stopping.expire(base, counted, EXPIRE_STEP, call) < EXPIRE_STEP
  if call.seen.limits then limits.forget_gate(base, call) end
  if call.seen.pauses then redis.call('ZREMRANGEBYSCORE', base .. ':pauses', '-inf', digits(call.now)) end
  forget_dead(base, outage, call)
  return true
end
local function forget_lease(base)
  if entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane') > 0 then return end
  redis.call('HDEL', base .. ':meta', 'shortest_lease')
end
local function sweep(base, args)
  local max_stalled, interval = integer('max_stalled', args[3]), integer('interval', args[4])
  local gap = integer('gap', args[5])
  local meta, now = base .. ':meta', clock.now()
  local state = redis.call('HMGET', meta, 'swept_at', 'sweep_stream', 'sweep_lane', 'sweep_rest', 'lane_lost')
  local swept_at = tonumber(state[1] or nil)
  if args[6] ~= '1' and swept_at and not clock.is_ahead(swept_at, now) and now - swept_at < interval then return {} end
  queue_flags.compare(base)
  local call, report, it = queue_flags.call(base), {recovered = {}, failed = {}}, budget.new()
  local outage = lease.sign_of_life(base, now, gap, false)
  local cursors, left = {stream = state[2] or '', lane = state[3] or ''}, state[4] == '1'
  local fresh = cursors.stream == '' and cursors.lane == '' and not left
  set_back.mend(base, call, it)
  for _, name in ipairs({'stream', 'lane'}) do
    local cursor = cursors[name]
    if fresh or cursor ~= '' then
      local from = cursor == '' and '-' or cursor
      cursors[name] = sweep_stream(base, base .. ':' .. name, from, outage, max_stalled, call, report, it)
    end
  end
  local is_mended = mend_active_stream(base, state[5] or nil, call, it)
  if fresh or left then left = not housekeeping(base, outage, call, it) end
  redis.call('HSET', meta, 'swept_at', now, 'sweep_stream', cursors.stream, 'sweep_lane', cursors.lane, 'sweep_rest',
    left and '1' or '')
  wakeup.finish(base, call)
  local due = schedulers.next(base)
  local more = left or not is_mended or cursors.stream ~= '' or cursors.lane ~= ''
  if not more and call.seen.shortest_lease then forget_lease(base) end
  return {more and 1 or 0, report.recovered, report.failed, call.seen.outbox and 1 or 0,
    due and digits(math.max(0, due - call.now)) or ''}
end
local function close_worker(base, args)
  local consumer, call, it, count, more = args[3], queue_flags.call(base), budget.new(), 0, 0
  for _, name in ipairs({'stream', 'lane'}) do
    local stream = base .. ':' .. name
    local rows = pending(stream, '-', consumer)
    if #rows == STEP then more = 1 end
    for _, row in ipairs(rows) do
      if is_enough(it, call) then
        more = 1
        break
      end
      local id, entry = locations.give_up(base, stream, row[1], call)
      if id and exists(base .. ':job:' .. id) then
        if redis.call('SISMEMBER', base .. ':revoking', id) == 1 then
          finish.fail(base, id, entry, 'revoked', call)
        else
          returned.push(base, id, entry, call)
          events.note(call.lines, 'returned', id)
          count = count + 1
        end
      elseif id then
        record.lost(base, id, call)
        events.note(call.lines, 'dropped', id, 'missing')
      end
    end
  end
  if more == 0 then
    stalled.forget(base, consumer, call)
    request.leave(base, consumer)
  end
  wakeup.finish(base, call)
  return {more, count}
end
request.register('sweep', sweep, {'allow-oom'})
request.register('closeWorker', close_worker, {'allow-oom'})
end
do
local function notify_run(base, entry, message)
  local consumer = entries.consumer_of(base, entry)
  if consumer then wakeup.send(base, consumer, message) end
end
request.register('removeJob', function(base, args)
  local id = args[3]
  local state, entry = record.location(base, id)
  if not state then return 'missing' end
  if state == 'active' then notify_run(base, entry, 'x ' .. entry) end
  local call = queue_flags.call(base)
  removal.remove(base, id, state, call)
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})
request.register('retryJob', function(base, args)
  local id = args[3]
  local state = record.location(base, id)
  if not state then return 'missing' end
  if not locations.is_final(state) then return 'state ' .. state end
  if finish.remove_over(base, id) then return 'missing' end
  local call = queue_flags.call(base)
  removal.start_anew(base, id, 'retried', call)
  wakeup.finish(base, call)
  return 'ok'
end)
request.register('revokeJob', function(base, args)
  local id = args[3]
  local state, entry = record.location(base, id)
  if not state then return 'missing' end
  if locations.is_final(state) then return 'state ' .. state end
  local call = queue_flags.call(base)
  if args[4] and args[4] ~= '' then redis.call('HSET', base .. ':job:' .. id, 'revoked', args[4]) end
  if state == 'active' then
    redis.call('SADD', queue_flags.create(base, 'revoking', call.seen), id)
    notify_run(base, entry, 'r ' .. entry)
    events.note(call.lines, 'revoking', id)
    events.write(base, call.lines, call.now)
    return 'revoking'
  end
  finish.fail(base, id, locations.leave(base, id, call), 'revoked', call)
  wakeup.finish(base, call)
  return 'revoked'
end, {'allow-oom'})
request.register('promoteJob', function(base, args)
  local id = args[3]
  local state = record.location(base, id)
  if not state then return 'missing' end
  if state ~= 'delayed' then return 'state ' .. state end
  local call = queue_flags.call(base)
  locations.leave(base, id, call)
  redis.call('HSET', base .. ':job:' .. id, 'place', routes.enter_again(base, id, call))
  events.note(call.lines, 'waiting', id, 'promoted')
  wakeup.finish(base, call)
  return 'ok'
end)
end
local inbox
do
inbox = {}
do
  local FIELDS = 7
  local MOST_TOKENS, MOST_OF_LAST_HOUR, HOUR_MS = 10000, 100000, 3600000
  local MOST_FORGOTTEN = 1000    -- per call; a call adds at most MOST_JOBS
  local MOST_MOVED = 100000
  local MOST_JOBS = 100
  function inbox.known(base, tokens)
    local known, met = redis.call('ZMSCORE', base .. ':inbox', unpack(tokens)), {}
    for i, token in ipairs(tokens) do
      known[i] = known[i] or met[token]
      met[token] = true
    end
    return known
  end
  local function forget_old(key, last)
    local over = redis.call('ZCARD', key) - MOST_TOKENS
    if over <= 0 then return end
    local old = redis.call('ZCOUNT', key, '-inf', digits(last - HOUR_MS))
    local forget = math.max(math.min(over, old), over + MOST_TOKENS - MOST_OF_LAST_HOUR)
    if forget > 0 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(forget, MOST_FORGOTTEN) - 1) end
  end
  function inbox.remember(base, tokens, now)
    local key, members = base .. ':inbox', {}
    local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
    local last = math.max(now, tonumber(newest[2] or 0))
    for i, token in ipairs(tokens) do
      members[2 * i - 1], members[2 * i] = digits(last), token
    end
    in_chunks('ZADD', key, nil, members)
    forget_old(key, last)
  end
  function inbox.drop_dead_letters(base, ids, call)
    local dropped = 0
    for _, id in ipairs(ids) do
      local state = record.location(base, id)
      if state and state ~= 'active' then
        removal.remove(base, id, state, call)
        dropped = dropped + 1
      elseif not state then
        record.lost(base, id, call)
      end
    end
    return dropped
  end
  local function cap(base, call)
    local key = base .. ':moved'
    local over = math.min(redis.call('ZCARD', key) - MOST_MOVED, MOST_JOBS)
    if over <= 0 then return end
    local oldest = redis.call('ZRANGE', key, 0, over - 1)
    inbox.drop_dead_letters(base, oldest, call)
    in_chunks('ZREM', key, nil, oldest)
  end
  local function with_key(job)
    local origin, extra = cmsgpack.unpack(job.origin), job.extra or {}
    local wanted = routes.extra_of(origin[7] or '')
    extra.key = extra.key or (wanted and wanted.key) or origin[1]
    return extra
  end
  local function parse(base, args)
    local n = integer('count', args[3])
    if n < 1 or n > MOST_JOBS or #args ~= 3 + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[3] .. ' jobs')
    end
    local mode, tokens, list = redis.call('HGET', base .. ':meta', 'mode'), {}, {}
    for i = 1, n do
      local at = 3 + (i - 1) * FIELDS
      local job = {id = args[at + 2], name = args[at + 3], data = args[at + 4], opts = args[at + 5]}
      job.extra = add.extra(args[at + 6])
      job.origin = args[at + 7]
      if job.origin ~= '' then job.failed_at = integer('failed', cmsgpack.unpack(job.origin)[6]) end
      if mode == 'keyed' and job.origin ~= '' then job.extra = with_key(job) end
      add.check_mode(mode, 1, {job.extra})
      tokens[i], list[i] = args[at + 1], job
    end
    return tokens, list
  end
  local function mark(base, id, job, call)
    redis.call('HSET', base .. ':job:' .. id, 'letter', job.origin)
    redis.call('ZADD', queue_flags.create(base, 'moved', call.seen), digits(job.failed_at), id)
  end
  request.register('deliverJobs', function(base, args)
    local tokens, list = parse(base, args)
    local known, call, answer, marked = inbox.known(base, tokens), queue_flags.call(base), {}, false
    for i, job in ipairs(list) do
      local id, status = job.id, 'seen'
      if not known[i] then id, status = add.one(base, job, call) end
      if status ~= 'added' then
        answer[#answer + 1] = i
        answer[#answer + 1] = status
      elseif job.failed_at then
        mark(base, id, job, call)
        marked = true
      end
    end
    inbox.remember(base, tokens, call.now)
    if marked then
      redis.call('HSET', base .. ':meta', 'touched', '1')
      cap(base, call)
    end
    wakeup.finish(base, call)
    return answer
  end)
end
end
do
do
  local STEP = 200
  local MOST_REVIVED = 100
  local STEP_BYTES = 1048576
  local function origin_of(base, id)
    local packed = redis.call('HGET', base .. ':job:' .. id, 'letter')
    local readable, origin = pcall(cmsgpack.unpack, packed or '')
    return readable and type(origin) == 'table' and origin or {}, packed
  end
  local fits = {}
  function fits.failed(base, id, cause)
    local found = redis.call('HGET', base .. ':job:' .. id, 'cause')
    return found ~= 'revoked' and (cause == '' or found == cause) and not finish.is_over(base, id)
  end
  function fits.moved(base, id, cause)
    return cause == '' or origin_of(base, id)[3] == cause
  end
  register('listDeadLetters', function(base, args)
    local which, cursor, count = args[1], args[2], integer('count', args[3])
    if not fits[which] then fail('ARGUMENT', 'there are failed and moved dead letters, found ' .. which) end
    if count < 1 or count > 1000 then fail('ARGUMENT', 'count must be 1 to 1000, found ' .. args[3]) end
    local from, ids = cursor == '' and 0 or integer('cursor', cursor), {}
    local found = redis.call('ZREVRANGE', base .. ':' .. which, from, from + count - 1)
    for _, id in ipairs(found) do
      if fits[which](base, id, args[4]) then ids[#ids + 1] = id end
    end
    return {#found == count and digits(from + count) or '', ids}
  end, {'no-writes'})
  local function walk(base, which, skip, left, cause, each)
    local key, it = base .. ':' .. which, budget.new()
    left = left == '' and redis.call('ZCARD', key) or integer('left', left)
    if left <= 0 then return skip, 0 end
    local ids = redis.call('ZRANGE', key, skip, skip + math.min(STEP, left) - 1)
    if #ids == 0 then return skip, 0 end
    for _, id in ipairs(ids) do
      if budget.is_spent(it) then return skip, left end
      local verdict = fits[which](base, id, cause) and each(id) or 'skip'
      if verdict == 'stop' then return skip, left end
      if verdict == 'skip' then skip = skip + 1 end
      left = left - 1
    end
    return skip, left
  end
  request.register('replayFailed', function(base, args)
    local skip, count, call, replayed = integer('skip', args[3]), integer('count', args[5]), queue_flags.call(base), 0
    local left
    skip, left = walk(base, 'failed', skip, args[4], args[6], function(id)
      if replayed == count or keyed.has_touched_many(call) then return 'stop' end
      if record.location(base, id) ~= 'failed' then return 'skip' end
      removal.start_anew(base, id, 'replayed', call)
      replayed = replayed + 1
      return 'gone'
    end)
    wakeup.finish(base, call)
    return {skip, left, replayed}
  end)
  register('readMoved', function(base, args)
    local skip, count, bytes, rows = integer('skip', args[1]), integer('count', args[3]), 0, {}
    local left
    skip, left = walk(base, 'moved', skip, args[2], args[4], function(id)
      if #rows >= 5 * math.min(count, MOST_REVIVED) or bytes > STEP_BYTES then return 'stop' end
      local state = record.location(base, id)
      local _, packed = origin_of(base, id)
      if not state or state == 'active' or not packed then return 'skip' end
      local job = redis.call('HMGET', base .. ':job:' .. id, 'name', 'data', 'opts')
      for _, value in ipairs({id, packed, job[1] or '?', job[2] or '', job[3] or ''}) do
        rows[#rows + 1] = value
        bytes = bytes + #value
      end
      return 'gone'
    end)
    return {skip, left, rows}
  end, {'no-writes'})
  local FIELDS = 7
  local function parse(args)
    local n = integer('count', args[3])
    if n < 1 or n > MOST_REVIVED or #args ~= 3 + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[3] .. ' jobs')
    end
    local tokens, list = {}, {}
    for i = 1, n do
      local at = 3 + (i - 1) * FIELDS
      tokens[i] = args[at + 1]
      list[i] = {id = args[at + 2], failed_at = args[at + 3], name = args[at + 4], data = args[at + 5],
        opts = args[at + 6], extra = routes.extra_of(args[at + 7])}
    end
    return tokens, list
  end
  local function check_modes(base, list)
    local mode = redis.call('HGET', base .. ':meta', 'mode')
    for _, job in ipairs(mode and list or {}) do
      if not record.location(base, job.id) or finish.is_over(base, job.id) then add.check_mode(mode, 1, {job.extra}) end
    end
  end
  local function revive(base, job, call)
    local state = record.location(base, job.id)
    if not state or (state == 'failed' and finish.remove_over(base, job.id)) then
      add.one(base, job, call)
      return 'ok'
    end
    if state ~= 'failed' or redis.call('HGET', base .. ':job:' .. job.id, 'ended') ~= job.failed_at then
      return 'superseded'
    end
    removal.start_anew(base, job.id, 'replayed', call)
    return 'ok'
  end
  request.register('reviveJobs', function(base, args)
    local tokens, list = parse(args)
    check_modes(base, list)
    local known, call, statuses = inbox.known(base, tokens), queue_flags.call(base), {}
    for i, job in ipairs(list) do statuses[i] = known[i] and 'seen' or revive(base, job, call) end
    inbox.remember(base, tokens, call.now)
    wakeup.finish(base, call)
    return statuses
  end)
  request.register('dropMoved', function(base, args)
    local ids = {}
    for i = 3, #args do ids[#ids + 1] = args[i] end
    local call = queue_flags.call(base)
    local dropped = inbox.drop_dead_letters(base, ids, call)
    wakeup.finish(base, call)
    return dropped
  end, {'allow-oom'})
end
end
do
local function route_with(route, priority)
  local kind = route and string.sub(route, 1, 1)
  if kind == 'k' then
    local parsed = keyed.parse(route)
    parsed.priority = digits(priority)
    return keyed.format(parsed)
  end
  if priority > 0 then return 'p ' .. digits(priority) end
  return kind == 'l' and route or nil
end
local function changeable(base, id)
  local state = record.location(base, id)
  if not state then return nil, 'missing' end
  if not locations.is_unstarted(state) then return nil, 'state ' .. state end
  return state
end
request.register('changePriority', function(base, args)
  local id, priority = args[3], integer('priority', args[4])
  local state, status = changeable(base, id)
  if not state then return status end
  local call, key = queue_flags.call(base), base .. ':job:' .. id
  local before = redis.call('HGET', key, 'route')
  local route = route_with(before, priority)
  if route == (before or nil) then return 'ok' end
  local entry
  if state ~= 'delayed' then entry = locations.leave(base, id, call) end
  if route then redis.call('HSET', key, 'route', route) else redis.call('HDEL', key, 'route') end
  if entry then
    record.keep_added(base, id, entry)
    redis.call('HSET', key, 'place', routes.enter(base, id, route, call))
  end
  events.note(call.lines, 'changed', id, 'priority ' .. digits(priority))
  wakeup.finish(base, call)
  return 'ok'
end)
local function leave_location(base, id, key)
  local route = redis.call('HGET', key, 'route')
  if not route or string.sub(route, 1, 1) ~= 'k' then return end
  local parsed = keyed.parse(route)
  parsed.sequence = '0'
  redis.call('HSET', key, 'route', keyed.format(parsed))
end
request.register('changeDelay', function(base, args)
  local id, delay = args[3], integer('delay', args[4])
  local state, status = changeable(base, id)
  if not state then return status end
  local call, key = queue_flags.call(base), base .. ':job:' .. id
  if delay == 0 and state ~= 'delayed' then return 'ok' end
  if delay == 0 then
    locations.leave(base, id, call)
    redis.call('HSET', key, 'place', routes.enter_again(base, id, call))
    events.note(call.lines, 'waiting', id, 'promoted')
  else
    if state == 'delayed' then
      scheduled.take_out(base, id)
    else
      record.keep_added(base, id, locations.leave(base, id, call))
      leave_location(base, id, key)
    end
    redis.call('HSET', key, 'place', scheduled.push(base, id, call.now + delay, call))
    events.note(call.lines, 'changed', id, 'delay ' .. digits(delay))
  end
  wakeup.finish(base, call)
  return 'ok'
end)
end
do
local LOG_LINES = 1000
local write = {}
function write.progress(base, id, value, entry)
  if entry == '' then redis.call('HSET', base .. ':meta', 'touched', '1') end
  redis.call('HSET', base .. ':job:' .. id, 'progress', value)
  return 'progress'
end
function write.data(base, id, value)
  redis.call('HSET', base .. ':job:' .. id, 'data', value)
  return 'updated'
end
function write.log(base, id, value)
  local key = base .. ':logs:' .. id
  redis.call('HSETNX', base .. ':meta', 'logs', '1')
  if redis.call('RPUSH', key, value) > LOG_LINES then redis.call('LTRIM', key, -LOG_LINES, -1) end
end
request.register('updateJob', function(base, args)
  local id, entry, kind = args[3], args[4], args[5]
  if not write[kind] then fail('ARGUMENT', 'unknown kind of update ' .. kind) end
  local location = redis.call('HGET', base .. ':job:' .. id, 'place')
  if not location then return 'missing' end
  if entry ~= '' and settle.fenced then
    if location ~= 'active ' .. entry then return 'stale' end
    if args[7] and entries.consumer_of(base, entry) ~= args[7] then return 'stale' end
  end
  local event = write[kind](base, id, args[6], entry)
  if event then events.one(base, event, id, nil, clock.now()) end
  return 'ok'
end, {'allow-oom'})
end
do
request.register('setResultTtl', function(base, args)
  local id = args[3]
  local ttl = args[4] ~= '' and integer('ttl', args[4]) or nil
  if ttl and ttl < 1 then fail('ARGUMENT', 'a time to live must be more than zero, found ' .. args[4]) end
  local state = record.location(base, id)
  if not state then return 'missing' end
  if state ~= 'completed' and state ~= 'failed' then return 'state ' .. state end
  if finish.remove_over(base, id) then return 'missing' end
  finish.change_ttl(base, id, state, clock.now(), ttl)
  return 'ok'
end)
end
do
local TRIM_STEP = 200
local function find(channels, channel)
  return string.find(' ' .. channels .. ' ', ' ' .. channel .. ' ', 1, true)
end
register('awaitJob', function(base, args)
  local id, channel = args[1], args[2]
  local state = record.location(base, id)
  if not state then return {'missing'} end
  if state == 'completed' or state == 'failed' then
    if finish.is_over(base, id) then return {'missing'} end
    return {state, redis.call('HGETALL', base .. ':job:' .. id)}
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  if not (channels and find(channels, channel)) then
    local key = queue_flags.create(base, 'waiters')
    redis.call('HSET', key, id, channels and channels .. ' ' .. channel or channel)
  end
  return {'waiting'}
end, {'allow-oom'})
register('forgetReply', function(base, args)
  local id, channel = args[1], args[2]
  if redis.call('ZSCORE', base .. ':held', id) then
    finish.confirm(base, channel, {id})    -- the job has ended
    return 'ok'
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  local from, last = find(channels or '', channel)
  if not from then return 'ok' end
  if channels == channel then
    redis.call('HDEL', base .. ':waiters', id)
  else
    local rest = string.sub(channels, 1, math.max(0, from - 2)) .. string.sub(channels, from == 1 and last or last - 1)
    redis.call('HSET', base .. ':waiters', id, rest)
  end
  return 'ok'
end, {'allow-oom'})
register('confirmReplies', function(base, args)
  if #args > 1001 then fail('ARGUMENT', 'at most 1000 ids are confirmed in a call, found ' .. #args - 1) end
  if #args > 1 and finish.confirm(base, args[1], {unpack(args, 2)}) > 0 then
    local keep = redis.call('HMGET', base .. ':meta', 'keep_completed', 'keep_failed')
    local seen = {held = exists(base .. ':held'), keep = {completed = keep[1] or '', failed = keep[2] or ''}}
    finish.trim_all(base, clock.now(), seen, #args + TRIM_STEP)
  end
  return 'ok'
end, {'allow-oom'})
end
do
local OWNER = 'glidemq_async'
local LAYOUT = '1'
local OURS = {'events', 'seen_at', 'schedulers', 'dead_letter', 'relaying', 'outbox_last', 'turn', 'numeric_ids',
  'touched', 'keep_completed', 'keep_failed', 'limits', 'key_limits', 'planned',
  'features'}
local function refuse(base, asked, found)
  fail('INCOMPATIBLE', base .. ': asked for ' .. asked .. ', found ' .. found)
end
local function has_field_of_ours(key)
  for _, value in ipairs(redis.call('HMGET', key, unpack(OURS))) do
    if value then return true end
  end
  return false
end
local function check_meta(base, mode)
  local key = base .. ':meta'
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    local stream = redis.call('TYPE', base .. ':stream').ok
    if stream ~= 'none' and stream ~= 'stream' then
      refuse(base, 'a queue of ' .. OWNER, 'a foreign key ' .. base .. ':stream')
    end
    return false
  end
  if kind ~= 'hash' then refuse(base, 'a queue of ' .. OWNER, 'a ' .. kind .. ' at ' .. key) end
  local meta = redis.call('HMGET', key, 'owner', 'layout', 'mode')
  local is_ours = meta[1] == OWNER or (not meta[1] and has_field_of_ours(key))
  if not is_ours then
    refuse(base, 'a queue of ' .. OWNER, 'data of ' .. (meta[1] or 'another library'))
  end
  if meta[2] and meta[2] ~= LAYOUT then refuse(base, 'layout ' .. LAYOUT, 'layout ' .. meta[2]) end
  if mode ~= '' and meta[3] and meta[3] ~= mode then refuse(base, 'mode ' .. mode, 'mode ' .. meta[3]) end
  return true
end
register('openQueue', function(base, args)
  local mode, key = args[1], base .. ':meta'
  local rules = access.check(base)
  check_meta(base, mode)
  if not redis.call('HGET', key, 'owner') then
    redis.call('HSET', key, 'owner', OWNER, 'layout', LAYOUT)
  end
  if args[2] and args[2] ~= '' then redis.call('HSETNX', key, 'incarnation', args[2]) end
  if mode ~= '' then redis.call('HSETNX', key, 'mode', mode) end
  if args[3] and args[3] ~= '' then redis.call('HSET', key, 'dead_letter', args[3]) end
  entries.ensure_group(base .. ':stream')
  entries.ensure_active_group(base)
  queue_flags.compare(base)
  redis.call('HSET', key, SEP, WIDENER)
  redis.call('HDEL', key, SEP)
  local answer = redis.call('HMGET', key, 'layout', 'mode', 'paused', 'schedulers', 'incarnation')
  if args[4] == '1' then answer[6] = rules end
  return answer
end, {'allow-oom'})
request.register('setPaused', function(base, args)
  local paused, meta = args[3], base .. ':meta'
  if (redis.call('HGET', meta, 'paused') or '0') == paused then return 'ok' end
  redis.call('HSET', meta, 'paused', paused)
  local call = queue_flags.call(base)
  events.note(call.lines, paused == '1' and 'paused' or 'resumed', '')
  if paused == '0' then call.startable = locations.ready_count(base) end
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})
end
local writes
do
writes = {}
do
  local DAY = 86400000
  local LEAST_KEPT = 7 * DAY       -- of the figures of a write, for any ttl
  local LONGEST = 90 * DAY
  local MOST_LISTED = 1000
  local MOST_JOBS = 500
  local MOST_READ = 100
  local FIELDS = 5
  local function fenced(id, text)
    fail('WRITEFENCED', 'write ' .. id .. ' ' .. text)
  end
  local function ledger_of(base, id)
    return base .. ':written:' .. id
  end
  local function keep(base, id, ttl)
    redis.call('PEXPIRE', base .. ':write:' .. id, digits(math.max(ttl, LEAST_KEPT)))
    if ttl > 0 then redis.call('PEXPIRE', ledger_of(base, id), digits(ttl)) end
  end
  local function transaction(base, app)
    local last = redis.call('GET', base .. ':transaction:' .. app)
    if not last then return nil end
    local version, id = string.match(last, '^(%d+) (.*)$')
    return tonumber(version), id
  end
  local function list(base, id, now)
    local key = base .. ':writes'
    redis.call('ZADD', key, digits(now), id)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now - LONGEST))
    redis.call('ZREMRANGEBYRANK', key, 0, -MOST_LISTED - 1)
    redis.call('PEXPIRE', key, digits(LONGEST))
  end
  local function next_order(base)
    local meta = base .. ':meta'
    local order = math.max(clock.now(), tonumber(redis.call('HGET', meta, 'planned') or 0) + 1)
    redis.call('HSET', meta, 'planned', digits(order))
    return order
  end
  request.register('planWrite', next_order)
  request.register('openWrite', function(base, args)
    local id, token, ttl, app = args[3], args[4], integer('ttl', args[5]), args[6]
    local version = app ~= '' and integer('version', args[7]) or nil
    if id == '' or token == '' then fail('ARGUMENT', 'a write needs an id and a token') end
    if ttl < 0 or ttl > LONGEST then fail('ARGUMENT', 'ttl must be 0 to 90 days, found ' .. args[5]) end
    local key = base .. ':write:' .. id
    local found = redis.call('HMGET', key, 'state', 'token', 'order')
    if found[1] == 'committed' then return 'done' end
    local last = app ~= '' and transaction(base, app)
    if last and last >= version then return 'done' end
    local order = integer('order', args[9] or '0')
    local known = tonumber(found[3] or 0)
    if order > 0 and order < known then fenced(id, 'belongs to a newer run of it') end
    if found[1] == 'aborted' and found[2] == token then fenced(id, 'was aborted') end
    if order == 0 then order = math.max(next_order(base), known) end
    local now = clock.now()
    if not found[1] then
      redis.call('HSET', key, 'began', digits(now), 'inserted', '0', 'replayed', '0', 'duplicate', '0', 'rejected', '0',
        'incarnation', redis.call('HGET', base .. ':meta', 'incarnation') or '')
      if app ~= '' then redis.call('HSET', key, 'app', app, 'version', digits(version)) end
    end
    if args[8] and args[8] ~= '' then redis.call('HSET', key, 'label', args[8]) end
    if found[2] ~= token then redis.call('HINCRBY', key, 'runs', 1) end
    redis.call('HSET', key, 'state', 'open', 'token', token, 'ttl', digits(ttl), 'order', digits(order))
    redis.call('HDEL', key, 'ended')
    keep(base, id, ttl)
    list(base, id, now)
    return 'open'
  end)
  local function depth(base)
    local stream, n = base .. ':stream', 0
    for _, name in ipairs({'returned', 'lifo', 'prioritized', 'keyed'}) do
      n = n + redis.call('ZCARD', base .. ':' .. name)
    end
    return n + redis.call('XLEN', stream) - entries.pending_count(stream)
  end
  local function remembered(ledger, members, ttl)
    if ttl == 0 or #members == 0 then return {} end
    return redis.call('SMISMEMBER', ledger, unpack(members))
  end
  local function replayed(ledger, args, from, n, ttl)
    local ids, at_position, known, met, count = {}, {}, {}, {}, 0
    for i = 1, n do
      local id = args[from + 1 + (i - 1) * FIELDS]
      if id ~= '' then
        if met[id] then known[i] = true end
        met[id] = true
        ids[#ids + 1], at_position[#ids + 1] = id, i
      end
    end
    for k, is_there in ipairs(remembered(ledger, ids, ttl)) do
      if is_there == 1 then known[at_position[k]] = true end
    end
    for _ in pairs(known) do count = count + 1 end
    return known, count
  end
  local function remember(ledger, args, from, n, known, left_out, marks, ttl)
    if ttl == 0 then return #marks end
    local members = {}
    for i = 1, n do
      local id = args[from + 1 + (i - 1) * FIELDS]
      if id ~= '' and not known[i] and not left_out[i] then members[#members + 1] = id end
    end
    if #members > 0 then in_chunks('SADD', ledger, nil, members) end
    return #marks > 0 and in_chunks('SADD', ledger, nil, marks) or 0
  end
  local function paced(kept, rate, rows, now)
    if rate == 0 then return '0', 0 end
    local at, said = string.match(kept or '', '^(%S+) ?(%d*)$')
    at = tonumber(at or 0)
    if said and said ~= '' and clock.is_ahead(tonumber(said), now) then at = 0 end
    at = math.max(at, now) + rows * 1000000 / rate
    return string.format('%.3f %d', at, now), math.max(0, math.ceil(at - now))
  end
  local function open_write(base, id, token)
    local found = redis.call('HMGET', base .. ':write:' .. id, 'state', 'token', 'ttl', 'inserted', 'replayed',
      'duplicate', 'rejected', 'next')
    if not found[1] then fenced(id, 'is not known: it was never opened, or ended long ago') end
    if found[1] ~= 'open' then fenced(id, 'is ' .. found[1]) end
    if found[2] ~= token then fenced(id, 'was taken over by another run of it') end
    return found
  end
  local NOTHING = {}
  local function all_new(base, args, from, jobs)
    if jobs.generated > 0 or jobs.numeric or next(jobs.extras) then return false end
    local keys, prefix = {}, base .. ':job:'
    for i = 1, jobs.n do keys[i] = prefix .. args[from + 1 + (i - 1) * FIELDS] end
    if exists(keys[1]) then return false end    -- most likely a rerun, whose other jobs exist too
    return redis.call('EXISTS', unpack(keys)) == 0
  end
  local function count_outcomes(outcomes)
    local left_out, n, sample = {}, 0, ''
    for k = 1, #outcomes, 3 do
      if outcomes[k + 1] ~= 'held' then
        left_out[outcomes[k]], n = true, n + 1
        if n == 1 then sample = outcomes[k + 2] end
      end
    end
    return left_out, n, sample
  end
  request.register('addToWrite', function(base, args)
    local id, rate, quiet, from = args[3], integer('rate', args[5]), args[6] ~= '0', 8
    local marks = args[7] ~= '' and cmsgpack.unpack(args[7]) or NOTHING
    local n = integer('count', args[from])
    if n > MOST_JOBS or #marks > MOST_JOBS then fail('ARGUMENT', 'at most ' .. MOST_JOBS .. ' jobs a call') end
    local jobs = n > 0 and add.parse(args, from) or nil
    local write = open_write(base, id, args[4])
    local ledger, ttl = ledger_of(base, id), tonumber(write[3])
    local known, again = replayed(ledger, args, from, n, ttl)
    local call, outcomes, _ = nil, NOTHING, nil
    if again < n then
      call, _, _, outcomes = add.all(base, jobs,
        {known = known, quiet = quiet, new = all_new(base, args, from, jobs)})
    elseif jobs then
      incarnation.check(args[from + 1 + n * FIELDS], redis.call('HGET', base .. ':meta', 'incarnation'))
    end
    local now = call and call.now or clock.now()
    local others, foreign, sample = count_outcomes(outcomes)
    local rejected = remember(ledger, args, from, n, known, args[6] == '1' and NOTHING or others, marks, ttl)
    local inserted = n - again - foreign
    local next_at, wait = paced(write[8], rate, n, now)
    redis.call('HSET', base .. ':write:' .. id, 'inserted', digits(write[4] + inserted),
      'replayed', digits(write[5] + again), 'duplicate', digits(write[6] + foreign),
      'rejected', digits(write[7] + rejected), 'next', next_at)
    keep(base, id, ttl)
    if call then wakeup.finish(base, call) end
    return {now, depth(base), wait, inserted, again, foreign, sample}
  end)
  local function distinct(args, from, n)
    local ids, seen = {}, {}
    for i = 1, n do
      local id = args[from + i]
      if id == '' then fail('ARGUMENT', 'a probe needs ids, found none at ' .. i) end
      if not seen[id] then
        seen[id] = true
        ids[#ids + 1] = id
      end
    end
    return ids
  end
  local function standing(base, ids)
    if #ids == 0 then return NOTHING end
    local keys, found, prefix = {}, {}, base .. ':job:'
    for k, id in ipairs(ids) do keys[k] = prefix .. id end
    local count, held = redis.call('EXISTS', unpack(keys)), exists(base .. ':held')
    if count == 0 then return found end
    if count == #keys and not held then return ids end
    for k, id in ipairs(ids) do
      if (count == #keys or exists(keys[k])) and not (held and finish.is_over(base, id)) then
        found[#found + 1] = id
      end
    end
    return found
  end
  local function are_all(flags, n)
    for i = 1, n do
      if flags[i] ~= 1 then return false end
    end
    return true
  end
  local function foreseen(base, is_met, ids, quiet)
    local statuses, unmet = {}, {}
    for k, id in ipairs(ids) do
      if is_met[k] == 1 then statuses[id] = 'replayed' else unmet[#unmet + 1] = id end
    end
    local taken = quiet and standing(base, unmet) or NOTHING
    for _, id in ipairs(taken) do statuses[id] = 'duplicate' end
    return statuses, taken
  end
  request.register('probeWrite', function(base, args)
    local id, quiet, n = args[3], args[5] ~= '0', integer('count', args[6])
    if n < 1 or n > MOST_JOBS or #args ~= 7 + n then fail('ARGUMENT', 'a probe takes 1 to ' .. MOST_JOBS .. ' ids') end
    local write = open_write(base, id, args[4])
    incarnation.check(args[7 + n], redis.call('HGET', base .. ':meta', 'incarnation'))
    local ledger, ttl = ledger_of(base, id), tonumber(write[3])
    local ids = distinct(args, 6, n)
    local is_met = remembered(ledger, ids, ttl)
    if are_all(is_met, #ids) then
      redis.call('HSET', base .. ':write:' .. id, 'replayed', digits(write[5] + n))
      keep(base, id, ttl)
      return {n, 0, string.rep('0', n)}
    end
    local statuses, taken = foreseen(base, is_met, ids, quiet)
    local missing, again, foreign = {}, 0, 0
    for i = 1, n do
      local row = args[6 + i]
      local status = statuses[row]
      missing[i] = status and '0' or '1'
      if status == 'duplicate' then
        foreign, statuses[row] = foreign + 1, 'replayed'    -- another row with this id is a repetition
      elseif status then
        again = again + 1
      end
    end
    if ttl > 0 and foreign > 0 and args[5] == '1' then in_chunks('SADD', ledger, nil, taken) end
    if again + foreign > 0 then
      redis.call('HSET', base .. ':write:' .. id, 'replayed', digits(write[5] + again),
        'duplicate', digits(write[6] + foreign))
    end
    keep(base, id, ttl)
    return {again, foreign, table.concat(missing)}
  end)
  local function commit(base, id, key)
    local found = redis.call('HMGET', key, 'app', 'version', 'ttl')
    if not found[1] then return end
    local last = transaction(base, found[1])
    if last and last >= tonumber(found[2]) then return end
    redis.call('SET', base .. ':transaction:' .. found[1], found[2] .. ' ' .. id, 'PX', digits(LONGEST))
  end
  request.register('endWrite', function(base, args)
    local id, token, wanted, partitions = args[3], args[4], args[5], integer('partitions', args[6])
    if wanted ~= 'committed' and wanted ~= 'aborted' then fail('ARGUMENT', 'a write cannot become ' .. wanted) end
    local key, now = base .. ':write:' .. id, clock.now()
    local found = redis.call('HMGET', key, 'state', 'token', 'inserted')
    if not found[1] then return {'missing', ''} end
    if found[1] == wanted then return {'ok', wanted} end
    if token ~= '' and found[2] ~= token then return {'fenced', found[1]} end
    if found[1] ~= 'open' then return {'state', found[1]} end
    if wanted == 'committed' then commit(base, id, key) end
    redis.call('HSET', key, 'state', wanted, 'ended', digits(now), 'partitions', digits(partitions))
    events.one(base, 'written', '', wanted .. ' ' .. found[3] .. ' ' .. id, now)
    return {'ok', wanted}
  end, {'allow-oom'})
  register('getWrites', function(base, args)
    if #args > MOST_READ then fail('ARGUMENT', 'at most ' .. MOST_READ .. ' writes a call, found ' .. #args) end
    local found = {}
    for i, id in ipairs(args) do found[i] = redis.call('HGETALL', base .. ':write:' .. id) end
    return found
  end, {'no-writes'})
  register('listWrites', function(base, args)
    local from, count = args[1] == '' and 0 or integer('cursor', args[1]), integer('count', args[2])
    if count < 1 or count > MOST_READ then fail('ARGUMENT', 'count must be 1 to ' .. MOST_READ) end
    local ids = redis.call('ZREVRANGE', base .. ':writes', from, from + count - 1)
    return {#ids == count and digits(from + count) or '', ids}
  end, {'no-writes'})
  register('getTransaction', function(base, args)
    local version, id = transaction(base, args[1])
    return {version and digits(version) or '', id or ''}
  end, {'no-writes'})
  register('getDepth', depth, {'no-writes'})
  function writes.exists(base, kind, name)
    local id = name
    if kind == 'transaction' then id = select(2, transaction(base, name)) end
    local mark = id and redis.call('HGET', base .. ':write:' .. id, 'incarnation')
    return mark and mark == redis.call('HGET', base .. ':meta', 'incarnation')
  end
end
end
do
local STEP = 50
local FIELDS = {concurrency = {'concurrency'}, rate = {'rate_max', 'rate_ms'}, bucket = {'capacity', 'refill'}}
local function parse(args, from)
  local writes = {}
  for i = from, #args, 2 do
    local fields, value = FIELDS[args[i]], args[i + 1]
    if not fields then fail('ARGUMENT', 'unknown limit ' .. args[i]) end
    local numbers = {}
    for number in string.gmatch(value, '%d+') do numbers[#numbers + 1] = number end
    if value ~= '' and #numbers ~= #fields then fail('ARGUMENT', 'the limit ' .. args[i] .. ' cannot be ' .. value) end
    for j, field in ipairs(fields) do writes[#writes + 1] = {field, numbers[j]} end
  end
  return writes
end
local function set(key, writes)
  for _, write in ipairs(writes) do
    if write[2] then redis.call('HSET', key, write[1], write[2]) else redis.call('HDEL', key, write[1]) end
  end
end
local function all_of(key, fields)
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 1, #fields do values[i] = values[i] or '' end
  return values
end
request.register('setLimits', function(base, args)
  local writes = parse(args, 3)
  set(queue_flags.create(base, 'limits'), writes)
  local length = redis.call('HGET', base .. ':limits', 'rate_ms')
  if length then limits.keep_starts(base .. ':rate', tonumber(length)) else redis.call('UNLINK', base .. ':rate') end
  limits.note_use(base)
  local call = queue_flags.call(base)
  call.startable = locations.ready_count(base)
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})
register('getLimits', function(base)
  return all_of(base .. ':limits', {'concurrency', 'rate_max', 'rate_ms', 'gate'})
end, {'no-writes'})
local function keep_known(base, key, call)
  local limits_now = keyed.limits_of(base, key, call)
  limits.keep_starts(base .. ':keyrate:' .. key, limits_now.length)
  limits.keep_tokens(base .. ':keybucket:' .. key, limits_now.bucket, call.now)
end
request.register('setKeyLimits', function(base, args)
  local key = args[3]
  set(base .. ':key:' .. key, parse(args, 4))
  if exists(base .. ':key:' .. key) then
    redis.call('SADD', base .. ':limited', key)
    redis.call('HSET', base .. ':meta', 'key_limits', '1')
  else
    redis.call('SREM', base .. ':limited', key)
  end
  local call = queue_flags.call(base)
  if key ~= '' then keep_known(base, key, call) end
  if key ~= '' then keyed.touch(call, key) end
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})
register('getKeyLimits', function(base, args)
  local values = all_of(base .. ':key:' .. args[1], {'concurrency', 'rate_max', 'rate_ms', 'capacity', 'refill'})
  local ends = redis.call('ZSCORE', base .. ':pauses', args[1])
  values[6] = ends and tonumber(ends) > clock.now() and ends or ''
  return values
end, {'no-writes'})
request.register('pauseKey', function(base, args)
  local key, length = args[3], integer('ms', args[4])
  local call = queue_flags.call(base)
  redis.call('ZREM', base .. ':pauses', key)
  if length > 0 then keyed.pause(base, key, call.now + length, call) end
  keyed.touch(call, key)
  events.note(call.lines, length > 0 and 'key-paused' or 'key-resumed', key, digits(length))
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})
request.register('reviewKeys', function(base, args)
  local call = queue_flags.call(base)
  local step = redis.call('ZRANGEBYSCORE', base .. ':keyed', '(' .. digits(integer('cursor', args[3])), '+inf',
    'WITHSCORES', 'LIMIT', 0, STEP)
  for i = 1, #step, 2 do
    local route = keyed.route_of(base, step[i])
    if route then keyed.touch(call, route.key) end
    if route then keep_known(base, route.key, call) end
  end
  wakeup.finish(base, call)
  return #step == 2 * STEP and digits(tonumber(step[#step])) or ''
end, {'allow-oom'})
end
local reading
do
reading = {}
reading.DEEP_STEP = 300          -- for jobs that cost several commands each
local DEEP_STEP = reading.DEEP_STEP
local LOG_STEP = 20
function reading.counts(base)
  local stream = base .. ':stream'
  local running, limited = entries.pending_count(stream), redis.call('ZCARD', base .. ':sleeping')
  return {
    'waiting', redis.call('XLEN', stream) - running + redis.call('ZCARD', base .. ':returned')
      + redis.call('ZCARD', base .. ':lifo'),
    'active', running + entries.pending_count(base .. ':lane'),
    'delayed', redis.call('ZCARD', base .. ':scheduled'),
    'prioritized', redis.call('ZCARD', base .. ':prioritized'),
    'key-waiting', redis.call('ZCARD', base .. ':keyed') - limited,
    'rate-limited', limited,
    'completed', redis.call('ZCARD', base .. ':completed'),
    'failed', redis.call('ZCARD', base .. ':failed'),
  }
end
local function limit(text)
  local count = integer('count', text)
  if count < 1 or count > 1000 then fail('ARGUMENT', 'count must be 1 to 1000, found ' .. text) end
  return count
end
function reading.last_delivered(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err or not groups[1] then return '0' end
  for i = 1, #groups[1], 2 do
    if groups[1][i] == 'last-delivered-id' then return groups[1][i + 1] end
  end
  return '0'
end
local function by_rank(key, reverse, cursor, count, ids, cut)
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local found = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', key, from, from + count - 1)
  for _, member in ipairs(found) do ids[#ids + 1] = cut and string.sub(member, cut + 1) or member end
  return #found == count and digits(from + count) or ''
end
local list = {}
local AFTER = {r = 's', s = 'i'}
local BEFORE = {i = 's', s = 'r'}
local walk_waiting = {}
function walk_waiting.r(base, backwards, cursor, count, ids)
  return by_rank(base .. ':returned', backwards, cursor, count, ids)
end
function walk_waiting.s(base, backwards, cursor, count, ids)
  local stream, delivered, found = base .. ':stream', reading.last_delivered(base .. ':stream'), nil
  if backwards then
    found = redis.call('XREVRANGE', stream, cursor == '' and '+' or '(' .. cursor, '(' .. delivered, 'COUNT', count)
  else
    found = redis.call('XRANGE', stream, '(' .. (cursor == '' and delivered or cursor), '+', 'COUNT', count)
  end
  for _, entry in ipairs(found) do ids[#ids + 1] = entry[2][2] end
  return #found == count and found[count][1] or ''
end
function walk_waiting.i(base, backwards, cursor, count, ids)
  return by_rank(base .. ':lifo', not backwards, cursor, count, ids)
end
function list.waiting(base, cursor, count, ids, backwards)
  local prefix = cursor == '' and (backwards and 'i' or 'r') or string.sub(cursor, 1, 1)
  local rest = string.sub(cursor, 2)
  while true do
    local next_cursor = walk_waiting[prefix](base, backwards, rest, count, ids)
    if next_cursor ~= '' then return prefix .. next_cursor end
    prefix, rest = (backwards and BEFORE or AFTER)[prefix], ''
    if not prefix then return '' end
    if #ids > 0 then return prefix end
  end
end
function list.prioritized(base, cursor, count, ids, backwards)
  return by_rank(base .. ':prioritized', backwards, cursor, count, ids, 16)
end
local function is_rate_limited(base, id)
  local route = keyed.route_of(base, id)
  if not route or not redis.call('ZSCORE', base .. ':sleeping', route.key) then return false end
  local first = redis.call('ZRANGE', base .. ':keyq:' .. route.key, 0, 0)[1]
  return string.sub(first, 18) == id
end
list['key-waiting'] = function(base, cursor, wanted, ids, backwards)
  local all, count = {}, math.min(wanted, DEEP_STEP)
  local next_cursor = by_rank(base .. ':keyed', backwards, cursor, count, all)
  local limited = exists(base .. ':sleeping')
  for _, id in ipairs(all) do
    if not limited or not is_rate_limited(base, id) then ids[#ids + 1] = id end
  end
  return next_cursor
end
list['rate-limited'] = function(base, cursor, wanted, ids, backwards)
  local keys, count = {}, math.min(wanted, DEEP_STEP)
  local next_cursor = by_rank(base .. ':sleeping', backwards, cursor, count, keys)
  for _, key in ipairs(keys) do
    ids[#ids + 1] = string.sub(redis.call('ZRANGE', base .. ':keyq:' .. key, 0, 0)[1], 18)
  end
  return next_cursor
end
local function active_backwards(base, cursor, count, ids)
  local prefix = cursor == '' and 'l' or string.sub(cursor, 1, 1)
  local stream, from = entries.stream_of(base, prefix), '+'
  if #cursor > 1 then
    from = '(' .. string.sub(cursor, 2)
  elseif prefix == 's' then
    from = reading.last_delivered(stream)
  end
  local found = redis.call('XREVRANGE', stream, from, '-', 'COUNT', count)
  for _, entry in ipairs(found) do ids[#ids + 1] = entry[2][2] end
  if #found == count then return prefix .. found[count][1] end
  return prefix == 'l' and 's' or ''
end
function list.active(base, cursor, wanted, ids, backwards)
  local count = math.min(wanted, DEEP_STEP)
  if backwards then return active_backwards(base, cursor, count, ids) end
  local prefix = cursor == '' and 's' or string.sub(cursor, 1, 1)
  local from = #cursor > 1 and '(' .. string.sub(cursor, 2) or '-'
  local stream = entries.stream_of(base, prefix)
  local rows = redis.pcall('XPENDING', stream, GROUP, from, '+', count)
  if rows.err then rows = {} end
  for _, row in ipairs(rows) do
    local entry = redis.call('XRANGE', stream, row[1], row[1])[1]
    if entry then ids[#ids + 1] = entry[2][2] end
  end
  if #rows == count then return prefix .. rows[count][1] end
  return prefix == 's' and 'l' or ''
end
function list.delayed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':scheduled', backwards, cursor, count, ids, 16)
end
function list.completed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':completed', not backwards, cursor, count, ids)
end
function list.failed(base, cursor, count, ids, backwards)
  return by_rank(base .. ':failed', not backwards, cursor, count, ids)
end
register('version', function() return VERSION end, {'no-writes'})
register('countJobs', reading.counts, {'no-writes'})
local function whole(key)
  return redis.call('HGETALL', key)
end
local OUTLINE = {'name', 'opts', 'place', 'route', 'claim', 'added', 'failures', 'stalls', 'ended', 'reason', 'error',
  'cause', 'letter', 'progress', 'result', 'dedup', 'drop'}
local HEAD = {'name', 'place', 'route', 'claim', 'added', 'failures', 'stalls', 'ended', 'reason', 'cause', 'letter',
  'progress'}
local function part(key, fields)
  local flat, values = {}, redis.call('HMGET', key, unpack(fields))
  for i, value in ipairs(values) do
    if value then flat[#flat + 1], flat[#flat + 2] = fields[i], value end
  end
  if flat[1] then flat[#flat + 1], flat[#flat + 2] = 'size', digits(redis.call('HSTRLEN', key, 'data')) end
  return flat
end
local function head(key) return part(key, HEAD) end
local function outline(key) return part(key, OUTLINE) end
local function due_of(base, id, flat)
  for i = 1, #flat, 2 do
    if flat[i] == 'place' then
      local sequence = string.match(flat[i + 1], '^delayed (.*)$')
      local due = sequence and redis.call('ZSCORE', base .. ':scheduled', sequence .. id)
      return due and tonumber(due) < successors.NEVER and digits(tonumber(due)) or nil
    end
  end
end
local function records_of(base, args, read)
  if #args > 1000 then fail('ARGUMENT', 'at most 1000 records a call, found ' .. #args) end
  local records, it = {}, budget.of_answer()
  local limited, held = exists(base .. ':sleeping'), exists(base .. ':held')
  local scheduled = exists(base .. ':scheduled')
  for i, id in ipairs(args) do
    if i > 1 and budget.is_spent(it) then break end
    local flat = held and finish.is_over(base, id) and {} or read(base .. ':job:' .. id)
    records[i] = flat
    budget.count_record(it, flat)
    if limited and is_rate_limited(base, id) and record.location(base, id) == 'key-waiting' then
      flat[#flat + 1], flat[#flat + 2] = 'limited', '1'
    end
    local due = scheduled and due_of(base, id, flat)
    if due then flat[#flat + 1], flat[#flat + 2] = 'due', due end
  end
  return records
end
register('getRecords', function(base, args) return records_of(base, args, whole) end, {'no-writes'})
register('getHeads', function(base, args) return records_of(base, args, head) end, {'no-writes'})
register('getOutlines', function(base, args) return records_of(base, args, outline) end, {'no-writes'})
function reading.step(base, state, cursor, count, backwards)
  local walk = list[state]
  if not walk then fail('ARGUMENT', 'unknown state ' .. state) end
  local ids = {}
  return walk(base, cursor, limit(count), ids, backwards == '1'), ids
end
register('listJobs', function(base, args)
  return {reading.step(base, args[1], args[2], args[3], args[4])}
end, {'no-writes'})
register('listWorkers', function(base, args)
  local since, running, rows = clock.now() - integer('silent', args[1]), {}, {}
  for _, name in ipairs({'stream', 'lane'}) do
    local summary = redis.pcall('XPENDING', base .. ':' .. name, GROUP)
    for _, row in ipairs(not summary.err and summary[4] or {}) do running[row[1]] = (running[row[1]] or 0) + row[2] end
  end
  local alive = redis.call('ZRANGEBYSCORE', base .. ':alive', since, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  for i = 1, #alive, 2 do
    local name = alive[i]
    rows[#rows + 1] = {name, tonumber(alive[i + 1]), redis.call('HGET', base .. ':workers', name) or '',
      running[name] or 0}
  end
  return rows
end, {'no-writes'})
register('getLogs', function(base, args)
  local key, lines, it = base .. ':logs:' .. args[1], {}, budget.of_answer()
  local count, from, last = redis.call('LLEN', key), integer('start', args[2]), integer('stop', args[3])
  if from < 0 then from = math.max(0, count + from) end
  if last < 0 then last = count + last end
  last = math.min(last, count - 1)
  while from <= last do
    if #lines > 0 and budget.is_spent(it) then return {count, lines, digits(from)} end
    for _, line in ipairs(redis.call('LRANGE', key, from, math.min(last, from + LOG_STEP - 1))) do
      lines[#lines + 1] = line
      it.bytes = it.bytes + #line
    end
    from = from + LOG_STEP
  end
  return {count, lines, ''}
end, {'no-writes'})
register('isPaused', function(base)
  return wakeup.paused(base) and 1 or 0
end, {'no-writes'})
register('lastEvent', function(base)
  local last = redis.call('XREVRANGE', base .. ':events', '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', tonumber(redis.call('HGET', base .. ':meta', 'events') or 0)}
end, {'no-writes'})
end
do
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
  local meta = redis.call('HMGET', base .. ':meta', 'incarnation', 'events')
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
  if redis.call('HGET', base .. ':meta', 'incarnation') ~= mark then return 'ok' end
  local key = base .. ':positions'
  local new = redis.call('HSET', key, name, table.concat({mark, digits(n), digits(clock.now()), hold}, SEP)) == 1
  if new and redis.call('HLEN', key) > MOST_READERS then forget_oldest(key) end
  return 'ok'
end, {'allow-oom'})
register('noteLoss', function(base, args)
  if not exists(base .. ':meta') then return 'ok' end
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
end
local checking
do
checking = {}
local STATE_OF = {returned = 'waiting', lifo = 'waiting', prioritized = 'prioritized', keyed = 'key-waiting',
  scheduled = 'delayed', completed = 'completed', failed = 'failed'}
local ENTRY_OF = {returned = 'r', lifo = 'i'}
local function found(report, invariant, id, text)
  report[#report + 1] = invariant
  report[#report + 1] = id
  report[#report + 1] = text
end
local STEP = 200
local function check_zset(base, structure, cursor, count, report)
  local it = budget.new()
  local from = cursor == '' and 0 or integer('cursor', cursor)
  local ids = redis.call('ZRANGE', base .. ':' .. structure, from, from + count - 1)
  for i, member in ipairs(ids) do
    if i > 1 and budget.is_spent(it) then return digits(from + i - 1) end
    local id = locations.id_of(structure, member)
    local state, entry = record.location(base, id)
    local expected = id ~= member and string.sub(member, 1, 16) or ENTRY_OF[structure] or entry
    if not state then
      found(report, 'I2', id, 'in ' .. structure .. ' but has no record')
    elseif state ~= STATE_OF[structure] or entry ~= expected then
      found(report, 'I3', id, 'in ' .. structure .. ' but its location is ' .. state .. ' ' .. entry)
    end
  end
  return #ids == count and digits(from + count) or ''
end
local function is_pending(stream, entry)
  local rows = redis.pcall('XPENDING', stream, GROUP, entry, entry, 1)
  return not rows.err and rows[1] ~= nil
end
local function check_stream(base, structure, cursor, count, report)
  local stream, it = base .. ':' .. structure, budget.new()
  local rows = redis.call('XRANGE', stream, cursor == '' and '-' or '(' .. cursor, '+', 'COUNT', count)
  for i, entry in ipairs(rows) do
    if i > 1 and budget.is_spent(it) then return rows[i - 1][1] end
    local id, location = entry[2][2], select(3, entries.find(stream, entry[1]))
    local state, at = record.location(base, id)
    local expected = is_pending(stream, entry[1]) and 'active' or 'waiting'
    if structure == 'lane' and expected == 'waiting' then
      found(report, 'I4', id, 'entry of the active stream ' .. entry[1] .. ' is not pending for any consumer')
    end
    if not state then
      found(report, 'I2', id, structure .. ' entry ' .. entry[1] .. ' has no record')
    elseif state ~= expected or at ~= location then
      found(report, 'I3', id,
        structure .. ' entry ' .. entry[1] .. ' is ' .. expected .. ' but its location is ' .. state .. ' ' .. at)
    end
  end
  return #rows == count and rows[count][1] or ''
end
local function is_there(base, id, state, entry)
  if state == 'completed' or state == 'failed' then return redis.call('ZSCORE', base .. ':' .. state, id) end
  if state == 'delayed' then return redis.call('ZSCORE', base .. ':scheduled', entry .. id) end
  if state == 'key-waiting' then
    local route = keyed.route_of(base, id)
    return route and redis.call('ZSCORE', base .. ':keyed', id)
      and redis.call('ZSCORE', base .. ':keyq:' .. route.key, route.sequence .. entry .. id)
  end
  if entry == 'r' then return redis.call('ZSCORE', base .. ':returned', id) end
  if entry == 'i' then return redis.call('ZSCORE', base .. ':lifo', id) end
  if state == 'prioritized' then return redis.call('ZSCORE', base .. ':prioritized', entry .. id) end
  local stream, raw = entries.stream_of(base, entry)
  local holder, key, full = entries.find(stream, raw)
  if key and redis.call('HEXISTS', base .. ':running', key) == 0 then return false end
  return holder == id and full == entry and is_pending(stream, raw) == (state == 'active')
end
function checking.is_there(base, id)
  local state, entry = record.location(base, id)
  return state and is_there(base, id, state, entry) or false
end
local function check_record(base, id, report)
  local key = base .. ':job:' .. id
  local fields = redis.call('HMGET', key, 'place', 'name', 'ended', 'claim', 'after')
  if not fields[1] then
    if exists(key) then found(report, 'I2', id, 'a record without a location: no add made it') end
    return
  end
  local state, entry = record.location(base, id)
  if not fields[2] or redis.call('HEXISTS', key, 'data') == 0 then
    found(report, 'I2', id, 'a record without name or data')
  end
  if not is_there(base, id, state, entry) then
    found(report, 'I1', id, 'its location is ' .. state .. ' ' .. entry .. ' but it is not there')
  end
  local over = state == 'completed' or state == 'failed'
  if over and not fields[3] then found(report, 'I5', id, state .. ' without a time of ending') end
  if state == 'active' and not fields[4] then found(report, 'I4', id, 'active without a claim') end
  if fields[5] and state == 'delayed' and not successors.is_expected(base, id, entry) then
    found(report, 'I9', id, 'waits for the end of another job, and no deduplication id names it')
  end
end
register('checkPlaces', function(base, args)
  local structure, report = args[1], {}
  local walk = STATE_OF[structure] and check_zset or check_stream
  local cursor = walk(base, structure, args[2], integer('count', args[3]), report)
  return {cursor, report}
end, {'no-writes'})
register('checkRecords', function(base, args)
  local report, it = {}, budget.new()
  for i, id in ipairs(args) do
    if i > 1 and budget.is_spent(it) then return {i - 1, report} end
    check_record(base, id, report)
  end
  return {#args, report}
end, {'no-writes'})
local function check_members(base, key, members, state, report)
  for _, id in ipairs(members) do
    local route = keyed.route_of(base, id)
    local now = record.location(base, id)
    if not route or route.key ~= key then
      found(report, 'I6', id, 'in a line of key ' .. key .. ' but not a job of it')
    elseif now ~= state then
      found(report, 'I6', id, 'in a line of key ' .. key .. ' as ' .. state .. ' but its location is ' .. now)
    end
  end
end
local function check_ready(base, key, report)
  local waiting = redis.call('ZCARD', base .. ':keyq:' .. key)
  local call = {now = clock.now(), seen = queue_flags.at(base)}
  local left = keyed.room(base, key, keyed.limits_of(base, key, call), call)
  local ready = redis.call('ZSCORE', base .. ':ready', key)
  local sleeping = redis.call('ZSCORE', base .. ':sleeping', key)
  local expected, is_indexed = waiting > 0 and left > 0, (ready or sleeping) and true or false
  if expected ~= is_indexed then
    found(report, 'I7', key, waiting .. ' jobs wait and ' .. left .. ' more may run, but the key is '
      .. (ready and 'ready' or sleeping and 'sleeping' or 'neither ready nor sleeping'))
  end
  if ready and sleeping then found(report, 'I7', key, 'both ready and sleeping') end
end
register('checkKey', function(base, args)
  local key, report = args[1], {}
  local part, at = string.match(args[2], '^(%a) (%d+)$')
  if part ~= 'r' then
    local from, ids = tonumber(at or 0), {}
    local members = redis.call('ZRANGE', base .. ':keyq:' .. key, from, from + STEP - 1)
    for i, member in ipairs(members) do ids[i] = string.sub(member, 18) end
    check_members(base, key, ids, 'key-waiting', report)
    return {#members == STEP and 'w ' .. digits(from + STEP) or 'r 0', report}
  end
  local found = redis.call('SSCAN', base .. ':keyrest:' .. key, at, 'COUNT', STEP)
  check_members(base, key, found[2], 'delayed', report)
  if found[1] ~= '0' then return {'r ' .. found[1], report} end
  check_ready(base, key, report)
  return {'', report}
end, {'no-writes'})
local function check_running(base, report)
  local stream, runs = base .. ':lane', stopping.by_key(base)
  if not runs or redis.call('XLEN', stream) > 1000 or redis.call('HLEN', base .. ':running') > 1000 then return end
  for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+')) do
    local key = entries.key_of(entry[2])
    if key then runs[key] = (runs[key] or 0) + 1 end
  end
  local counted = redis.call('HGETALL', base .. ':running')
  for i = 1, #counted, 2 do
    local key, count = counted[i], tonumber(counted[i + 1])
    if count ~= runs[key] then
      found(report, 'I6', key, count .. ' runs are counted and ' .. (runs[key] or 0) .. ' are active or stopping')
    end
    runs[key] = nil
  end
  for key, count in pairs(runs) do
    found(report, 'I6', key, count .. ' runs are active or stopping and none is counted')
  end
end
local mark = {}
local function has_record(name)
  return function(base, id, report)
    if not exists(base .. ':job:' .. id) then found(report, 'I9', id, 'in ' .. name .. ' but has no record') end
  end
end
mark.expiry, mark.held = has_record('expiry'), has_record('held')
function mark.moved(base, id, report)
  local state = record.location(base, id)
  if not state then return found(report, 'I9', id, 'in moved but has no record') end
  if state == 'completed' or state == 'failed' then found(report, 'I9', id, 'in moved but ' .. state) end
end
function mark.completed(base, id, report)
  if redis.call('ZSCORE', base .. ':failed', id) then found(report, 'I1', id, 'both completed and failed') end
end
function mark.revoking(base, id, report)
  local state = record.location(base, id)
  if not state then found(report, 'I9', id, 'in revoking but has no record') end
  if state ~= 'active' then found(report, 'I9', id, 'in revoking but not active') end
end
local function check_marks(base, name, at, report)
  local key, it = base .. ':' .. name, budget.new()
  if name == 'revoking' then
    local step = redis.call('SSCAN', key, at, 'COUNT', STEP)
    for _, id in ipairs(step[2]) do mark.revoking(base, id, report) end
    return step[1] ~= '0' and step[1] or nil
  end
  local from = tonumber(at)
  local ids = redis.call('ZRANGE', key, from, from + STEP - 1)
  for i, id in ipairs(ids) do
    if i > 1 and budget.is_spent(it) then return digits(from + i - 1) end
    mark[name](base, id, report)
  end
  return #ids == STEP and digits(from + STEP) or nil
end
local MARKS = {'expiry', 'held', 'revoking', 'moved', 'completed'}
register('checkQueue', function(base, args)
  local report = {}
  local number, at = string.match(args[1], '^(%d+) (%d+)$')
  if not number then
    check_running(base, report)
    for _, name in ipairs(queue_flags.missing(base)) do
      found(report, 'I13', name, 'exists without its flag in meta, so claims may not see it until the next sweep')
    end
    return {'1 0', report}
  end
  number = tonumber(number)
  local rest = check_marks(base, MARKS[number], at, report)
  if rest then return {number .. ' ' .. rest, report} end
  return {MARKS[number + 1] and number + 1 .. ' 0' or '', report}
end, {'no-writes'})
end
do
register('searchJobs', function(base, args)
  local count = math.min(integer('count', args[3]), reading.DEEP_STEP)
  local cursor, met = reading.step(base, args[1], args[2], digits(count), args[5])
  local found, name = {}, args[4]
  for _, id in ipairs(met) do
    if redis.call('HGET', base .. ':job:' .. id, 'name') == name then found[#found + 1] = id end
  end
  return {cursor, found}
end, {'no-writes'})
end
local cleaning
do
cleaning = {}
do
  local FIRST_PIECE, LARGEST_PIECE, MOST = 8, 32, 500
  function cleaning.begin(base, count)
    local n = integer('count', count)
    if n < 1 or n > MOST then fail('ARGUMENT', 'count must be 1 to ' .. MOST .. ', found ' .. count) end
    local step = queue_flags.call(base)
    step.left, step.budget, step.removed = n, budget.new(), 0
    return step
  end
  local function in_pieces(step, take)
    local piece = FIRST_PIECE
    while step.left > 0 and not budget.is_spent(step.budget) and (not step.most or step.removed < step.most) do
      local wanted = math.min(piece, step.left, step.most and step.most - step.removed or step.left)
      local met = take(wanted)
      step.left = step.left - met
      if met < wanted then return true end
      piece = math.min(piece * 2, LARGEST_PIECE)
    end
    return false
  end
  local function remove(base, ids, step)
    if #ids == 0 then return end
    for _, id in ipairs(ids) do
      local key = base .. ':job:' .. id
      local it = step.budget
      it.bytes = it.bytes + redis.call('HSTRLEN', key, 'data') + redis.call('HSTRLEN', key, 'result')
    end
    removal.strip(base, ids, step)
    step.removed = step.removed + #ids
    for _, id in ipairs(step.cleaned and ids or {}) do step.cleaned[#step.cleaned + 1] = id end
  end
  local EXPECTED = {scheduled = '^delayed ', lifo = '^waiting i$', prioritized = '^prioritized ',
    keyed = '^key%-waiting ', returned = '^waiting r$', completed = '^completed ', failed = '^failed '}
  cleaning.EXPECTED = EXPECTED
  local function judge(base, structure, id, bound)
    local found = redis.call('HMGET', base .. ':job:' .. id, 'place', 'added', 'route')
    if not found[1] then return 'lost' end
    if not string.find(found[1], EXPECTED[structure]) then return 'elsewhere' end
    local added = bound and tonumber(found[2] or keyed.added_of(found[3] or ''))
    if added and added > bound then return 'stay' end
    return 'go'
  end
  local leaving = {}
  function leaving.scheduled(base, id, step) keyed.wake_up(base, id, step) end
  function leaving.keyed(base, id, step) keyed.leave(base, id, step) end
  local function take_members(base, structure, members, bound, step)
    local going, ids, staying = {}, {}, 0
    for _, member in ipairs(members) do
      local id = locations.id_of(structure, member)
      local verdict = judge(base, structure, id, bound)
      if verdict == 'stay' then
        staying = staying + 1
      else
        going[#going + 1] = member
        if verdict ~= 'elsewhere' then ids[#ids + 1] = id end
        if verdict == 'go' and leaving[structure] then leaving[structure](base, id, step) end
        if verdict == 'lost' and structure == 'scheduled' then keyed.wake_up(base, id, step) end
      end
    end
    in_chunks('ZREM', base .. ':' .. structure, nil, going)
    remove(base, ids, step)
    keyed.review(base, step)
    return staying, ids
  end
  local function position_at(key, passed, reversed)
    if passed == 0 then return '' end
    local at = digits(passed - 1)
    local last = redis.call(reversed and 'ZREVRANGE' or 'ZRANGE', key, at, at, 'WITHSCORES')
    return last[2] .. ' ' .. last[1]
  end
  local function passed_at(key, position, reversed)
    local score, member = string.match(position, '^(%S+) (.*)$')
    if not score then return 0 end
    local mark = member .. SEP    -- sorts directly after the member
    redis.call('ZADD', key, score, mark)
    local passed = redis.call(reversed and 'ZREVRANK' or 'ZRANK', key, mark)
    redis.call('ZREM', key, mark)
    if reversed and redis.call('ZSCORE', key, member) == score then passed = passed + 1 end
    return passed
  end
  local function walk_zset(base, structure, at, bound, step)
    local key, newest_first = base .. ':' .. structure, structure == 'lifo'
    local passed = passed_at(key, at, newest_first)
    local over = in_pieces(step, function(n)
      local range = newest_first and 'ZREVRANGE' or 'ZRANGE'
      local members = redis.call(range, key, digits(passed), digits(passed + n - 1))
      if #members > 0 then passed = passed + (take_members(base, structure, members, bound, step)) end
      return #members
    end)
    return not over and position_at(key, passed, newest_first) or nil
  end
  local function walk_stream(base, _, at, _, step)
    local stream = base .. ':stream'
    if at == '' then
      local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
      if not last then return nil end
      at = last[1]
    end
    local over = in_pieces(step, function(n)
      local after, raw, ids = '(' .. reading.last_delivered(stream), {}, {}
      local found = redis.call('XRANGE', stream, after, at, 'COUNT', n)
      for i, entry in ipairs(found) do
        local id = entry[2][2]
        raw[i] = entry[1]
        local location = redis.call('HGET', base .. ':job:' .. id, 'place')
        if not location or location == 'waiting s' .. entry[1] then ids[#ids + 1] = id end
      end
      if #raw > 0 then in_chunks('XDEL', stream, nil, raw) end
      remove(base, ids, step)
      return #raw
    end)
    return not over and at or nil
  end
  local function sift_stream(base, _, at, bound, step)
    local stream = base .. ':stream'
    local over = in_pieces(step, function(n)
      local going, ids, delivered = {}, {}, reading.last_delivered(stream)
      if at == '' or entries.before(at, delivered) then at = delivered end
      local found = redis.call('XRANGE', stream, '(' .. at, '+', 'COUNT', n)
      for _, entry in ipairs(found) do
        local id = entry[2][2]
        at = entry[1]
        local known = redis.call('HMGET', base .. ':job:' .. id, 'place', 'added')
        local added = tonumber(known[2] or string.match(at, '^%d+'))
        if not known[1] or (known[1] == 'waiting s' .. at and added <= bound) then
          going[#going + 1], ids[#ids + 1] = at, id
        end
      end
      if #going > 0 then in_chunks('XDEL', stream, nil, going) end
      remove(base, ids, step)
      return #found
    end)
    return not over and at or nil
  end
  local function walk_runs(base, structure, _, _, step)
    local stream = base .. ':' .. structure
    local over = in_pieces(step, function(n)
      local rows, raw, ids = redis.pcall('XPENDING', stream, GROUP, '-', '+', n), {}, {}
      if rows.err then return 0 end
      for i, row in ipairs(rows) do
        raw[i] = row[1]
        local id, key, entry = entries.find(stream, row[1])
        if id then
          local is_active, kept = redis.call('HGET', base .. ':job:' .. id, 'place') == 'active ' .. entry, false
          if is_active then
            wakeup.send(base, row[2], 'x ' .. entry)
            ids[#ids + 1] = id
            kept = stopping.is_limited(base, entry, step) and stopping.keep(base, id, entry, key, row, step)
          end
          if key and not kept then keyed.release(base, {key}, step) end
        end
      end
      entries.drop(stream, raw)
      remove(base, ids, step)
      keyed.review(base, step)
      return #raw
    end)
    return not over and '-' or nil
  end
  function cleaning.walk_all(base, walks, at, position, bound, step)
    for number = at, #walks do
      local rest = walks[number][1](base, walks[number][2], position, bound, step)
      if rest then return number, rest end
      position = ''
    end
    return nil
  end
  local WAITING = {{walk_zset, 'scheduled'}, {walk_stream, 'stream'}, {walk_zset, 'lifo'}, {walk_zset, 'prioritized'},
    {walk_zset, 'keyed'}, {walk_zset, 'returned'}}
  cleaning.ALL = {{walk_runs, 'stream'}, {walk_runs, 'lane'}, WAITING[1], WAITING[2], WAITING[3], WAITING[4],
    WAITING[5], WAITING[6], {walk_zset, 'completed'}, {walk_zset, 'failed'}}
  request.register('drainJobs', function(base, args)
    local cursor, delayed, step = args[3], args[4], cleaning.begin(base, args[5])
    local at, bound, before, position = string.match(cursor, '^(%d+) (%d+) (%d+) (.*)$')
    if not at then at, bound, before, position = delayed == '1' and 1 or 2, step.now, 0, '' end
    local number, rest = cleaning.walk_all(base, WAITING, tonumber(at), position, tonumber(bound), step)
    local total = before + step.removed
    if not number and total > 0 then events.note(step.lines, 'drained', '', digits(total)) end
    wakeup.finish(base, step)
    if not number then return {'', step.removed} end
    return {number .. ' ' .. digits(tonumber(bound)) .. ' ' .. digits(total) .. ' ' .. rest, step.removed}
  end, {'allow-oom'})
  request.register('cleanJobs', function(base, args)
    local state, grace, step = args[4], integer('grace', args[5]), cleaning.begin(base, args[7])
    if state ~= 'completed' and state ~= 'failed' then fail('ARGUMENT', 'cannot clean state ' .. state) end
    local bound, left, before = string.match(args[3], '^(%-?%d+) (%d+) (%d+)$')
    if not bound then bound, left, before = digits(step.now - grace), integer('limit', args[6]), 0 end
    local cleaned = {}
    step.left = math.min(step.left, tonumber(left))
    local budget = step.left
    local over = in_pieces(step, function(n)
      local ids = redis.call('ZRANGEBYSCORE', base .. ':' .. state, '-inf', bound, 'LIMIT', 0, n)
      if #ids == 0 then return 0 end
      local _, gone = take_members(base, state, ids, nil, step)
      for _, id in ipairs(gone) do cleaned[#cleaned + 1] = id end
      return #ids
    end)
    left = left - (budget - step.left)
    local total = before + #cleaned
    over = over or left <= 0
    if over and total > 0 then events.note(step.lines, 'cleaned', '', digits(total)) end
    wakeup.finish(base, step)
    return {over and '' or bound .. ' ' .. digits(left) .. ' ' .. digits(total), cleaned}
  end, {'allow-oom'})
  local UNSTARTED = {
    waiting = {{walk_zset, 'returned'}, {sift_stream, 'stream'}, {walk_zset, 'lifo'}},
    prioritized = {{walk_zset, 'prioritized'}}, ['key-waiting'] = {{walk_zset, 'keyed'}},
    delayed = {{walk_zset, 'scheduled'}},
  }
  request.register('cleanUnstarted', function(base, args)
    local walks, grace, step = UNSTARTED[args[4]], integer('grace', args[5]), cleaning.begin(base, args[7])
    if not walks then fail('ARGUMENT', 'cannot clean state ' .. args[4]) end
    local at, bound, left, before, position = string.match(args[3], '^(%d+) (%-?%d+) (%d+) (%d+) (.*)$')
    if not at then at, bound, left, before, position = 1, step.now - grace, integer('limit', args[6]), 0, '' end
    bound, left, step.cleaned = tonumber(bound), tonumber(left), {}
    step.most = left
    local number, rest = cleaning.walk_all(base, walks, tonumber(at), position, bound, step)
    left = left - step.removed
    local total, over = before + step.removed, not number or left <= 0
    if over and total > 0 then events.note(step.lines, 'cleaned', '', digits(total)) end
    wakeup.finish(base, step)
    if over then return {'', step.cleaned} end
    return {number .. ' ' .. digits(bound) .. ' ' .. digits(left) .. ' ' .. digits(total) .. ' ' .. rest, step.cleaned}
  end, {'allow-oom'})
  request.register('promoteJobs', function(base, args)
    local key, step, promoted = base .. ':scheduled', cleaning.begin(base, args[5]), 0
    local bound, left, position = string.match(args[3], '^(%d+) (%d+) (.*)$')
    if not bound then
      local limit, there = integer('limit', args[4]), redis.call('ZCARD', key)
      bound, left, position = order.next(base, step), limit < 0 and there or math.min(limit, there), ''
    end
    left = tonumber(left)
    local skip = passed_at(key, position, false)
    local over = in_pieces(step, function(wanted)
      local n = math.min(wanted, left - promoted)
      if n == 0 then return 0 end
      local members = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. digits(successors.NEVER), 'LIMIT', skip, n)
      local gone = {}
      for _, member in ipairs(members) do
        if string.sub(member, 1, 16) > bound then
          skip = skip + 1
        else
          gone[#gone + 1] = member
          if scheduled.start(base, member, step, 'promoted') then promoted = promoted + 1 end
        end
      end
      in_chunks('ZREM', key, nil, gone)
      keyed.review(base, step)
      return #members == n and wanted or #members
    end)
    wakeup.finish(base, step)
    left = left - promoted
    local more = not over and left > 0
    return {more and bound .. ' ' .. digits(left) .. ' ' .. position_at(key, skip, false) or '', promoted}
  end)
  request.register('retryJobs', function(base, args)
    local state, step, retried = args[4], cleaning.begin(base, args[6]), 0
    if state ~= 'completed' and state ~= 'failed' then fail('ARGUMENT', 'cannot retry state ' .. state) end
    local key = base .. ':' .. state
    local bound, left, position = string.match(args[3], '^(%d+) (%d+) (.*)$')
    if not bound then
      local limit, there = integer('limit', args[5]), redis.call('ZCARD', key)
      bound, left, position = step.now, limit < 0 and there or math.min(limit, there), ''
    end
    bound, left = tonumber(bound), tonumber(left)
    local passed = passed_at(key, position, true)
    local over = in_pieces(step, function(wanted)
      local n = math.min(wanted, left - retried)
      if n == 0 then return 0 end
      local ids = redis.call('ZREVRANGE', key, digits(passed), digits(passed + n - 1))
      for _, id in ipairs(ids) do
        local ended = redis.call('HGET', base .. ':job:' .. id, 'ended')
        if record.location(base, id) ~= state then
          redis.call('ZREM', key, id)    -- its record is elsewhere or missing
        elseif ended and tonumber(ended) > bound then
          passed = passed + 1            -- it ended again since
        elseif not finish.remove_over(base, id) then
          removal.start_anew(base, id, 'retried', step)
          retried = retried + 1
        end
      end
      keyed.review(base, step)
      return #ids == n and wanted or #ids
    end)
    wakeup.finish(base, step)
    left = left - retried
    local more = not over and left > 0
    return {more and digits(bound) .. ' ' .. digits(left) .. ' ' .. position_at(key, passed, true) or '', retried}
  end)
end
end
do
do
  local function size(base)
    local n = 0
    for _, name in ipairs({'stream', 'lane'}) do n = n + redis.call('XLEN', base .. ':' .. name) end
    for name in pairs(cleaning.EXPECTED) do n = n + redis.call('ZCARD', base .. ':' .. name) end
    return n
  end
  local function remove_keys(base, args)
    local idle, keys = redis.call('ZRANGE', base .. ':idle', 0, 999), {}
    for i = 6, #args do keys[#keys + 1] = base .. ':' .. args[i] end
    in_chunks('UNLINK', nil, nil, keys)
    for _, consumer in ipairs(idle) do wakeup.send(base, consumer, 'w') end
  end
  local function is_event_recent(base)
    local last = redis.call('XREVRANGE', base .. ':events', '+', '-', 'COUNT', 1)[1]
    if not last then return false end
    local time = redis.call('TIME')
    return tonumber(string.match(last[1], '^%d+')) == time[1] * 1000 + math.floor(time[2] / 1000)
  end
  request.register('obliterateQueue', function(base, args)
    local cursor, force, step = args[3], args[4], cleaning.begin(base, args[5])
    if cursor == '' then
      local running = entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane')
      if running > 0 and force ~= '1' then return {'', 0, running} end
      redis.call('HSET', base .. ':meta', 'paused', '1')
    end
    local at, before, position = string.match(cursor, '^(%d+) (%d+) (.*)$')
    local reported = string.match(cursor, '^%a+ (%d+)$')
    if reported and size(base) == 0 then
      if is_event_recent(base) then return {'again ' .. reported, 0, 0} end
      remove_keys(base, args)
      return {'', 0, 0}
    end
    before = before or reported or 0
    local number, rest = cleaning.walk_all(base, cleaning.ALL, tonumber(at) or 1, position or '', nil, step)
    local total = digits(before + step.removed)
    if not number then events.note(step.lines, 'obliterated', '', total) end
    wakeup.finish(base, step)
    return {number and number .. ' ' .. total .. ' ' .. rest or 'reported ' .. total, step.removed, 0}
  end, {'allow-oom'})
  local OF_WRITES = {write = true, written = true, transaction = true}
  local ALWAYS = {metrics = true, key = true, keyrate = true, keybucket = true}
  register('sweepRemains', function(base, args)
    local keys, unused, begun = {}, size(base) == 0, exists(base .. ':meta')
    for _, name in ipairs(args) do
      local kind, rest = string.match(name, '^([^:]*):(.*)$')
      local free = unused or ALWAYS[kind]
      if kind == 'call' then free = not begun end
      if kind == 'job' or kind == 'logs' then free = not checking.is_there(base, rest) end
      if OF_WRITES[kind] then free = not writes.exists(base, kind, rest) end
      if free then keys[#keys + 1] = base .. ':' .. name end
    end
    return in_chunks('UNLINK', nil, nil, keys)
  end, {'allow-oom'})
end
end
