-- migration: converts a queue of layout 1 to layout 2 in bounded steps.
--   migrateQueue  -> { "more" }  a step was made, call again
--                    { "done" }  the queue has layout 2
--                    { "workers", ms, consumer… }  nothing was written: these workers of an older version gave a sign
--                    of life within the last minute, the last one `ms` ago
--     Any number of clients may call at the same time, and may stop after any step. The position is stored together
--     with the work, so a repeated call makes the next step.
--   meta2  migrating: "<phase> <position>" until the last step. Until then `features` is queue_flags.MIGRATING, and
--          all other calls are refused with MIGRATE.
--
-- Records, and the structures of all jobs that do not wait in FIFO order or run, are the same in both layouts. The
-- differences:
--   layout 1                                   layout 2
--   hash `meta`                                hash `meta2`; `meta` has the notice of layout.lua
--   waiting  "s<ms>-<seq>" entry of `stream`   "p<number>-<ms>" entry of `fifo`
--   active   "s<ms>-<seq>" pending in `stream` "l…" "k…" in `runs`. Every run gets a new token, so that a worker that
--            "l…" "k…" pending in `lane`       was suspended for a minute finds that it has lost its leases.
--   order of a returned job: ms * 4096 + seq   the same number minus 2^53. Then all of them come before the jobs that
--                                              return later, whose order is the number of their entry.
--   `added` is derived from the "s…" entry     is stored when the entry changes
--   hash `schedules_timer`                     hash `schedule_roles`. Schedulers of older clients continue to take the
--                                              roles in `schedules_timer`, but they can fire nothing.

local STEP = 32
local ALIVE_MS = 60000           -- by then every live worker has given a sign of life, see stalled.lua
local MOST_NAMED = 10
local OLDER = 2 ^ 53             -- every order of layout 1 is lower

local function is_after(a, b)
  return entries.before(b, a)
end

-- Return the order that a job of an entry of layout 1 has if it returns.
local function order_of(raw)
  local ms, seq = string.match(raw, '^(%d+)-(%d+)$')
  return ms * 4096 + math.min(tonumber(seq), 4095)
end

-- Return the claim of a run, with the order in which its job returns.
local function claim_with_order(claim, raw)
  local rest, order = string.match(claim, '^(%d+ %d+ %d+) ?(%-?%d*)$')
  if not rest then return claim end
  order = order == '' and order_of(raw) or tonumber(order)
  return rest .. ' ' .. digits(order < 0 and order or order - OLDER)
end

-- Return the location of a job, nil if it has no record.
local function place_of(base, id)
  local place = redis.pcall('HGET', base .. ':job:' .. id, 'place')
  return type(place) == 'string' and place or nil
end

-- Store the creation time, which the id of an entry of `stream` contains.
local function keep_added(base, id, raw)
  local key, added = base .. ':job:' .. id, string.match(raw, '^%d+')
  redis.call('HSETNX', key, 'added', added)
end

-- Store a run in `runs`, with the same worker and the same age. row: its row of XPENDING; ordering_key: nil for a job
-- without one.
local function move_run(base, row, ordering_key, id)
  local key, claim = base .. ':job:' .. id, nil
  local keys = ordering_key and {ordering_key}
  local call = {now = clock.now() - row[3]}
  local token = runs.start(base, row[2], {id}, keys, call)[1]
  if row[4] >= runs.RENEWED then runs.note_renewals(base, {token}, true, call.now) end
  claim = redis.call('HGET', key, 'claim')
  redis.call('HSET', key, 'place', 'active ' .. token)
  if claim and not ordering_key then redis.call('HSET', key, 'claim', claim_with_order(claim, row[1])) end
end

-- Append the jobs of undelivered entries { raw, hint, id, has_record } to `fifo`, in this order.
local function append_waiting(base, list)
  if not list[1] then return end
  local number = redis.call('INCRBY', base .. ':id', digits(#list)) - #list
  entries.mark_special(base, number + #list, {})
  for i, job in ipairs(list) do
    local entry = digits(number + i) .. '-' .. string.match(job.raw, '^%d+')
    redis.call('XADD', base .. ':fifo', entry, '', job.hint .. job.id)
    if job.has_record then redis.call('HSET', base .. ':job:' .. job.id, 'place', 'waiting p' .. entry) end
  end
end

local phase = {}
local FOLLOWING = {lane = 'stream -', stream = 'returned -', returned = 'completed 0', completed = 'failed 0',
  failed = 'end -'}

-- Each phase makes one step from a position. It returns the next position, nil if nothing is left.

-- Runs of `lane`. position: the last entry of layout 1, and the last one that was handled. Entries that are not pending
-- have lost their group and stay, and sweeps return their jobs, see stalled.lua.
function phase.lane(base, position)
  local last, from = string.match(position, '^(%S+) (%S+)$')
  local lane, moved = base .. ':lane', {}
  local rows = redis.call('XRANGE', lane, from == '-' and '-' or '(' .. from, last, 'COUNT', STEP)
  for _, entry in ipairs(rows) do
    local raw, field, id = entry[1], entry[2][1], entry[2][2]
    local row = entries.pending_row(lane, raw)
    if row and place_of(base, id) == 'active ' .. (field == 'h' and 'l' or 'k') .. raw then
      move_run(base, row, field ~= 'h' and string.sub(field, 2) or nil, id)
      moved[#moved + 1] = raw
    end
  end
  entries.drop(lane, moved)
  if rows[1] then return last .. ' ' .. rows[#rows][1] end
  if redis.call('XLEN', lane) == 0 then redis.call('UNLINK', lane) end
  return nil
end

-- Move the job of an entry of `stream`, or append it to `waiting`. An entry that another one of the same job has
-- replaced is left out.
local function take_entry(base, raw, fields, row, waiting)
  local hint, id = fields[1], fields[2]
  local place = place_of(base, id)
  if place == 'active s' .. raw and row then
    keep_added(base, id, raw)
    move_run(base, row, nil, id)
  elseif not place or place == 'waiting s' .. raw then
    waiting[#waiting + 1] = {raw = raw, hint = hint, id = id, has_record = place}
  elseif place == 'active s' .. raw then
    -- The group was destroyed, or the entry was acknowledged by hand. The claim must read the whole record.
    waiting[#waiting + 1] = {raw = raw, hint = 'h', id = id, has_record = true}
  end
end

-- Entries of `stream`. A step deletes the entries that it has handled, so the first one is the position.
function phase.stream(base)
  local stream, waiting = base .. ':stream', {}
  local rows = redis.call('XRANGE', stream, '-', '+', 'COUNT', STEP)
  if not rows[1] then
    redis.call('UNLINK', stream)
    return nil
  end
  local delivered = entries.last_delivered(stream)
  for _, entry in ipairs(rows) do
    local row = not is_after(entry[1], delivered) and entries.pending_row(stream, entry[1])
    take_entry(base, entry[1], entry[2], row, waiting)
  end
  append_waiting(base, waiting)
  local ms, seq = string.match(rows[#rows][1], '^(%d+)-(%d+)$')
  redis.call('XTRIM', stream, 'MINID', ms .. '-' .. digits(seq + 1))
  return '-'
end

-- Members of `returned`. A step makes their orders negative, so the first other one is the position.
function phase.returned(base)
  local key, changed = base .. ':returned', {}
  local rows = redis.call('ZRANGEBYSCORE', key, '0', '+inf', 'WITHSCORES', 'LIMIT', 0, STEP)
  for i = 1, #rows, 2 do changed[i], changed[i + 1] = digits(rows[i + 1] - OLDER), rows[i] end
  if not rows[1] then return nil end
  in_chunks('ZADD', key, nil, changed)
  return '-'
end

-- Records of ended jobs: store the creation time that the id of their last entry contains. position: the rank of the
-- first one that was not handled.
local function keep_added_of(name)
  return function(base, position)
    local rank = tonumber(position)
    local ids = redis.call('ZRANGE', base .. ':' .. name, digits(rank), digits(rank + STEP - 1))
    for _, id in ipairs(ids) do
      local raw = string.match(place_of(base, id) or '', '^%a+ s(%d+%-%d+)$')
      if raw then keep_added(base, id, raw) end
    end
    return ids[1] and digits(rank + #ids)
  end
end

phase.completed, phase.failed = keep_added_of('completed'), keep_added_of('failed')

-- Return the workers that were alive within the last minute, and how long ago the last one was, ms.
local function alive(base, now)
  local rows = redis.call('ZRANGEBYSCORE', base .. ':alive', digits(now - ALIVE_MS), digits(now + clock.SLACK_MS),
    'WITHSCORES')
  local names = {}
  for i = #rows - 1, math.max(1, #rows - 2 * MOST_NAMED + 1), -2 do names[#names + 1] = rows[i] end
  return names, rows[1] and math.max(0, now - rows[#rows])
end

-- Raise `id` to the last number of `fifo`. Both exist if another call created the queue again after FLUSHALL.
local function lift_counter(base)
  local last = redis.call('XREVRANGE', base .. ':fifo', '+', '-', 'COUNT', 1)[1]
  local number = last and tonumber(string.match(last[1], '^%d+')) or 0
  if number > tonumber(redis.call('GET', base .. ':id') or 0) then redis.call('SET', base .. ':id', digits(number)) end
end

-- Take the queue away from all other clients. Return the first position.
local function begin(base)
  local key, lane = base .. ':meta2', base .. ':lane'
  redis.call('HSET', key, unpack(redis.call('HGETALL', base .. ':meta')))
  layout.write_notice(base)
  redis.call('HSET', key, 'owner', layout.OWNER, 'layout', layout.NUMBER, 'features', queue_flags.MIGRATING)
  redis.call('HDEL', key, 'sweep_stream', 'sweep_lane', 'sweep_rest', 'lane_lost',
    'relaying')
  redis.call('UNLINK', base .. ':idle', base .. ':timer', base .. ':schedules_timer')
  entries.ensure_fifo_group(base)
  lift_counter(base)
  local last = redis.call('XREVRANGE', lane, '+', '-', 'COUNT', 1)[1]
  return 'lane ' .. (last and last[1] or '0-0') .. ' -'
end

-- The structures have layout 2. Numbers below the horizon have no entry of a plain job.
local function finish_migration(base)
  local key, last = base .. ':meta2', redis.call('GET', base .. ':id') or '0'
  redis.call('HSET', key, 'horizon', digits(last + 1))
  -- Opening the queue compares its flags.
  redis.call('HDEL', key, 'migrating', 'features')
end

-- Make steps from this position until the budget is spent. Return the next position, nil at the end.
local function advance(base, position, call_budget)
  repeat
    local name, at = string.match(position, '^(%a+) (.*)$')
    if name == 'end' then return nil end
    local reached = phase[name](base, at)
    position = reached and name .. ' ' .. reached or FOLLOWING[name]
  until budget.is_spent(call_budget)
  return position
end

register('migrateQueue', function(base)
  access.check(base)
  local key, call_budget = base .. ':meta2', budget.new()
  local position = redis.call('HGET', key, 'migrating')
  if not position then
    if layout.find(base) ~= 'old' then return {'done'} end
    local names, ago = alive(base, clock.now())
    if names[1] then return {'workers', ago, unpack(names)} end
    position = begin(base)
  end
  position = advance(base, position, call_budget)
  if position then
    redis.call('HSET', key, 'migrating', position)
    return {'more'}
  end
  finish_migration(base)
  return {'done'}
end)
