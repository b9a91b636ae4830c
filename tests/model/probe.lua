-- probe: appended to the test build of the library. A clock that does not move, and one function that reads all stored data.

-- Lines of a few jobs already continue in lists, and longer ones in zsets behind them.
key_lines.most_bytes, line_rests.most, line_rests.refill = 40, 3, 2

local stopped = 0

function clock.now()
  return stopped
end

-- Return the members behind the text of a line.
local function members_behind(base, key)
  local name, later = base .. ':keyq:' .. key, base .. ':keyz:' .. key
  local is_list = redis.call('TYPE', name).ok == 'list'
  local members = redis.call(is_list and 'LRANGE' or 'ZRANGE', name, 0, -1)
  for _, member in ipairs(redis.call('ZRANGE', later, 0, -1)) do members[#members + 1] = member end
  return members
end

-- Give the lines the form of earlier builds: each one is a zset.
local function make_old_lines(base)
  local texts = redis.call('HGETALL', base .. ':key_lines')
  for i = 1, #texts, 2 do
    local key, text = base .. ':keyq:' .. texts[i], string.match(texts[i + 1], '^[lmpqr]?(.*)$')
    local later = base .. ':keyz:' .. texts[i]
    local in_list = redis.call('TYPE', key).ok == 'list' and redis.call('LRANGE', key, 0, -1) or {}
    if in_list[1] then redis.call('DEL', key) end
    if redis.call('EXISTS', later) == 1 then redis.call('RENAME', later, key) end
    for item in string.gmatch(text, '[^' .. RS .. ']+') do
      local priority, member = string.match(item, '^(%d+):(.*)$')
      redis.call('ZADD', key, priority or '0', member or item)
    end
    for _, member in ipairs(in_list) do redis.call('ZADD', key, '0', member) end
  end
  redis.call('UNLINK', base .. ':key_lines')
  queue_flags.note_old_lines(base)
end

local MOVES = 4
local moves = 0

-- Every fourth call of a run also gives the lines the form of earlier builds. A separate action would change the random
-- choices of all seeds.
register('modelClock', function(base, args)
  stopped = integer('clock', args[1])
  moves = exists(base .. ':meta2') and moves + 1 or 0
  if moves % MOVES == MOVES - 1 then make_old_lines(base) end
  return 'ok'
end)

-- How the time of a call passes: "1" spends the budget of adding and settling with the first step, "0" leaves it.
local is_spent = false

function budget.has_settled_enough()
  return is_spent
end

function budget.has_added_enough()
  return is_spent
end

register('modelBudget', function(_, args)
  is_spent = args[1] == '1'
  return 'ok'
end)

local function pending_of(stream)
  local rows = redis.pcall('XPENDING', stream, GROUP, '-', '+', 10000)
  return rows.err and {} or rows
end

-- base ms grain: pending entries grow older by ms. The time that the server's own clock added is rounded off to the grain.
-- The age of other runs follows from the clock of the model.
register('modelAge', function(base, args)
  local ms, grain, fifo = tonumber(args[1]), tonumber(args[2]), base .. ':fifo'
  for _, row in ipairs(pending_of(fifo)) do
    local idle = math.floor(row[3] / grain) * grain + ms
    redis.call('XCLAIM', fifo, GROUP, row[2], 0, row[1], 'IDLE', digits(idle), 'JUSTID')
  end
  return 'ok'
end)

-- Return the runs outside of `fifo` as { token job worker idle mark }…, and the tokens in `renewed` that belong to none.
local function runs_of(base)
  local flat, known, stray = {}, {}, {}
  for _, row in ipairs(runs.rows_from(base, 0, 10000, stopped)) do
    flat[#flat + 1], known[row[1]] = {row[1], row[5], row[2], digits(row[3]), digits(row[4])}, true
  end
  for _, token in ipairs(redis.call('HKEYS', base .. ':renewed')) do
    if not known[token] then stray[#stray + 1] = token end
  end
  return flat, stray
end

local function sorted_set(key)
  return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
end

-- Return the claims of running plain jobs, flat: they have no record that contains one.
local function claims_of_plain(base)
  local flat = {}
  for _, row in ipairs(pending_of(base .. ':fifo')) do
    local id = plain.id_of(row[1])
    local view = plain.view(base, id)
    for i = 1, #view, 2 do
      if view[i] == 'claim' then flat[#flat + 1], flat[#flat + 2] = id, view[i + 1] end
    end
  end
  return flat
end

-- Return the compact jobs that have a record, and the ids of runs without a compact job.
local function damaged_compact(base)
  local found = {}
  for _, id in ipairs(redis.call('HKEYS', base .. ':compact')) do
    if exists(base .. ':job:' .. id) then found[#found + 1] = id end
  end
  for _, id in ipairs(redis.call('HKEYS', base .. ':compact_runs')) do
    if not compact.has(base, id) then found[#found + 1] = id end
  end
  return found
end

-- Return the lines of the ordering keys: { "keyq" key members }… Each begins in `key_lines`, and continues in its
-- list or its zset.
local function key_lines_of(base)
  local found, texts = {}, redis.call('HGETALL', base .. ':key_lines')
  for i = 1, #texts, 2 do
    local members = {}
    for item in string.gmatch(string.match(texts[i + 1], '^[lmpqr]?(.*)$'), '[^' .. RS .. ']+') do
      members[#members + 1] = string.match(item, '^%d+:(.*)$') or item
    end
    for _, member in ipairs(members_behind(base, texts[i])) do members[#members + 1] = member end
    for _, fault in ipairs(key_lines.faults_of(base, texts[i], texts[i + 1])) do members[#members + 1] = fault end
    found[#found + 1] = {'keyq', texts[i], members}
  end
  return found
end

local LINES = {keyrest = {'SMEMBERS'}, dedup = {'GET'},
  scheduler = {'HGETALL'}}

-- base event: returns all stored data without the library's own readers, and the events after the given entry.
register('modelProbe', function(base, args)
  local keys = redis.call('KEYS', base .. ':*')
  local records, logs, lines = {}, {}, key_lines_of(base)
  local runs_now, stray = runs_of(base)
  for _, key in ipairs(keys) do
    local id = string.match(key, ':job:(.*)$')
    if id then records[#records + 1] = {id, redis.call('HGETALL', key)} end
    id = string.match(key, ':logs:(.*)$')
    if id then
      local stored = redis.call('LRANGE', key, 0, -1)
      for i = 1, #stored do stored[i] = record.line_of(stored[i]) end
      logs[#logs + 1] = {id, stored}
    end
    if key == base .. ':compact' then
      for _, each in ipairs(redis.call('HKEYS', key)) do records[#records + 1] = {each, compact.view(base, each)} end
    end
    local kind, name = string.match(string.sub(key, #base + 2), '^(%a+):(.*)$')
    if (kind == 'keyq' or kind == 'keyz') and redis.call('HEXISTS', base .. ':key_lines', name) == 0 then
      local is_old = queue_flags.may_have_old_lines(base)
      lines[#lines + 1] = {'keyq', name, is_old and redis.call('ZRANGE', key, 0, -1) or {'a zset without a text'}}
    end
    local look = LINES[kind]
    if look then lines[#lines + 1] = {kind, name, look[2] and redis.call(look[1], key, look[2], look[3]) or redis.call(look[1], key)} end
  end
  return {
    keys,
    records,
    logs,
    redis.call('XRANGE', base .. ':fifo', '-', '+'),
    pending_of(base .. ':fifo'),
    runs_now,
    stray,
    sorted_set(base .. ':returned'),
    sorted_set(base .. ':scheduled'),
    sorted_set(base .. ':completed'),
    sorted_set(base .. ':failed'),
    sorted_set(base .. ':expiry'),
    sorted_set(base .. ':held'),
    redis.call('SMEMBERS', base .. ':revoking'),
    redis.call('HGETALL', base .. ':waiters'),
    redis.call('HGETALL', base .. ':workers'),
    sorted_set(base .. ':idle'),
    redis.call('XRANGE', base .. ':events', '(' .. args[1], '+'),
    redis.call('ZRANGE', base .. ':lifo', 0, -1),
    redis.call('ZRANGE', base .. ':prioritized', 0, -1),
    redis.call('ZRANGE', base .. ':keyed', 0, -1),
    sorted_set(base .. ':ready'),
    sorted_set(base .. ':sleeping'),
    redis.call('HGETALL', base .. ':resting'),
    redis.call('HGETALL', base .. ':deduped'),
    lines,
    redis.call('HGETALL', base .. ':meta2'),
    redis.call('XRANGE', base .. ':outbox', '-', '+'),
    sorted_set(base .. ':moved'),
    redis.call('ZRANGE', base .. ':inbox', 0, -1),
    sorted_set(base .. ':schedules'),
    redis.call('HGETALL', base .. ':schedule_roles'),
    redis.call('HGETALL', base .. ':running'),
    sorted_set(base .. ':stopping'),
    redis.call('HGETALL', base .. ':stopping_runs'),
    redis.call('HGETALL', base .. ':results'),
    claims_of_plain(base),
    redis.call('SMEMBERS', base .. ':recorded'),
    redis.call('HGETALL', base .. ':event_rules'),
    damaged_compact(base),
  }
end)
