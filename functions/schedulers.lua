-- schedulers: jobs that a queue adds by itself. Cron is computed by clients; here slots are compared, fired and stored,
-- so that each fires once however many processes try.
--   schedules        zset  id -> next slot, ms; +inf: it has ended, and stays for its history
--   scheduler:<id>   hash  rev (another one at each upsert); spec (the schedule, opaque here), limit, overlap ("1":
--                          pass over a slot while the last job has not ended); the template: name, data, opts, extra,
--                          wait; the history: fired, skipped, last_slot, last_job, triggered
--   schedules_timer  hash  first, second: the processes that come at the next slot by themselves, the second one a
--                          little later in case the first one died; first_by, second_by: when they come at the latest
--   meta  hash  schedulers: the last rev
--   upsertScheduler  lane number process id rev next { spec limit overlap name data opts extra wait } new_next
--                    -> { "ok" | "moved", now, at }        rev, next: as they were read, '' for none
--   removeScheduler  lane number id -> 0 | 1
--   fireScheduler    lane number id rev slot next skipped n slots… -> { "fired" | "moved", now }
--     slot: the stored next slot that the caller saw; next: the one to store, '' when the schedule has ended
--   triggerScheduler lane number id -> { now, job id, word, name, data, opts } | {}     word: "added", or why not
--   takeSchedules    process ignored ids… -> { now, role, at, due { id, rev, slot, spec, wait }… }
--     role: 1 first, 2 second, 0 neither; at: when to come again, ms, 0: nothing is scheduled
--   leaveSchedules   process -> "ok"       a process goes away and gives up its role
--   listSchedulers   cursor -> { next cursor | '', ids }      an id may come twice
--   getSchedulers    ids… -> { now, { next, flat record } | {} … }    at most 20
-- A job of a slot has the id "<scheduler id>@<slot>".

local schedulers = {}
do
  local PATROL_MS = 60000
  local BEHIND_MS = 200
  local LATE_MS = 1000
  local MOST_DUE = 20
  local MOST_SLOTS = 100
  local ENDED = '+inf'
  local TEMPLATE = {'spec', 'limit', 'overlap', 'name', 'data', 'opts', 'extra', 'wait'}

  local function unpacked(extra)
    return add.extra(extra)
  end

  local function key_of(base, id)
    return base .. ':scheduler:' .. id
  end

  -- The next slot of all but the ignored schedulers, nil when nothing is scheduled.
  function schedulers.next(base, ignored, n)
    local head = redis.call('ZRANGE', base .. ':schedules', 0, n or 0, 'WITHSCORES')
    for i = 1, #head, 2 do
      if not (ignored and ignored[head[i]]) then return head[i + 1] ~= 'inf' and tonumber(head[i + 1]) or nil end
    end
  end

  local function next_of(base, id)
    local score = redis.call('ZSCORE', base .. ':schedules', id)
    if not score then return nil end
    return score == 'inf' and '' or digits(tonumber(score))
  end

  -- Give a process the role that is free or its own; `first`: it knows of an earlier slot than whoever is first.
  -- Answers the role and when to come again.
  local function take_role(base, process, now, due, first)
    local timer = base .. ':schedules_timer'
    local found = redis.call('HMGET', timer, 'first', 'first_by', 'second', 'second_by')
    local function free(holder, by)
      -- An instant beyond the patrol was told by a clock that has been set back since.
      return not holder or holder == process or now > tonumber(by) + LATE_MS or tonumber(by) > now + 2 * PATROL_MS
    end
    local latest = now + PATROL_MS
    if first or free(found[1], found[2]) then
      local at = math.min(math.max(due, now), latest)
      redis.call('HSET', timer, 'first', process, 'first_by', digits(at))
      if found[3] == process then redis.call('HDEL', timer, 'second', 'second_by') end
      return 1, at
    elseif free(found[3], found[4]) then
      local at = math.min(math.max(due, now) + BEHIND_MS, latest)
      redis.call('HSET', timer, 'second', process, 'second_by', digits(at))
      return 2, at
    end
    return 0, latest
  end

  local function upsert(base, args)
    local process, id, rev, seen_next = args[3], args[4], args[5], args[6]
    local new_next = args[15]
    local score = new_next == '' and ENDED or digits(integer('next', new_next))
    if #args ~= 15 then fail('ARGUMENT', 'upsertScheduler takes 15 arguments, found ' .. #args) end
    local now, key = clock.now(), key_of(base, id)
    add.check_mode(redis.call('HGET', base .. ':meta', 'mode'), 1, {unpacked(args[13])})
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
    local state = record.place(base, id)
    return state and state ~= 'completed' and state ~= 'failed'
  end

  -- Read and check the slots of a call; answers them as texts, nil if the clock was set back and one has not come yet.
  local function slots_of(args, now, next_slot)
    local n, slots, last = integer('count', args[8]), {}, 0
    if n > MOST_SLOTS or #args ~= 8 + n then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' slots') end
    for i = 1, n do
      local slot = integer('slot', args[8 + i])
      if slot <= last then fail('ARGUMENT', 'slots must ascend, found ' .. args[8 + i]) end
      slots[i], last = digits(slot), slot
    end
    if next_slot and next_slot <= last then fail('ARGUMENT', 'the next slot must follow, found ' .. args[6]) end
    return last <= now and slots or nil
  end

  -- Add one job of the template. Answers what add.one does.
  local function add_job(base, id, template, call)
    local extra = template.extra
    local job = {id = id, name = template.name, data = template.data, opts = template.opts, extra = extra}
    local found, word = add.one(base, job, call)
    if word ~= 'added' then events.note(call.lines, 'duplicate', found, extra and extra.dedup and extra.dedup.id) end
    return found, word
  end

  -- The stored scheduler, checked and its extra unpacked; {} when there is none.
  local function read(base, id)
    local flat, stored = redis.call('HGETALL', key_of(base, id)), {}
    for i = 1, #flat, 2 do stored[flat[i]] = flat[i + 1] end
    if not stored.rev then return {} end
    for _, name in ipairs(TEMPLATE) do
      if not stored[name] then fail('DAMAGED', 'scheduler ' .. id .. ' is stored without ' .. name) end
    end
    stored.extra = unpacked(stored.extra)
    add.check_mode(redis.call('HGET', base .. ':meta', 'mode'), 1, {stored.extra})
    return stored
  end

  local function fire(base, args)
    local id, skipped = args[3], integer('skipped', args[7])
    local next_slot = args[6] ~= '' and integer('next', args[6]) or nil
    local now, key = clock.now(), key_of(base, id)
    local slots = slots_of(args, now, next_slot)
    local stored = read(base, id)
    if not slots or stored.rev ~= args[4] or next_of(base, id) ~= args[5] then return {'moved', now} end
    local limit, fired, last_job = tonumber(stored.limit), tonumber(stored.fired or 0), stored.last_job or ''
    local last_slot, alone = stored.last_slot or '', stored.overlap == '1'
    local busy, call = alone and has_not_ended(base, stored.triggered), glance.call(base)
    if skipped > 0 then events.note(call.lines, 'skipped', id, digits(skipped) .. ' missed') end
    skipped = skipped + tonumber(stored.skipped or 0)
    for _, slot in ipairs(slots) do
      if limit and fired >= limit then break end
      local job, word = nil, 'overlap'
      if not (alone and (busy or has_not_ended(base, last_job))) then
        job, word = add_job(base, id .. '@' .. slot, stored, call)
      end
      if word == 'added' then
        last_job, last_slot, fired = job, slot, fired + 1
      else
        skipped = skipped + 1
        events.note(call.lines, 'skipped', id, slot .. ' ' .. word)
      end
    end
    redis.call('HSET', key, 'fired', fired, 'skipped', skipped, 'last_slot', last_slot, 'last_job', last_job)
    local over = not next_slot or (limit and fired >= limit)
    redis.call('ZADD', base .. ':schedules', over and ENDED or digits(next_slot), id)
    wakeup.finish(base, call)
    return {'fired', now}
  end

  local function trigger(base, args)
    local stored = read(base, args[3])
    if not stored.rev then return {} end
    local call = glance.call(base)
    local id, word = add_job(base, '', stored, call)
    redis.call('HSET', key_of(base, args[3]), 'triggered', id)
    wakeup.finish(base, call)
    return {call.now, id, word, stored.name, stored.data, stored.opts}
  end

  local function due_rows(base, now, ignored, n)
    local rows = {}
    local ids = redis.call('ZRANGEBYSCORE', base .. ':schedules', '-inf', now, 'WITHSCORES', 'LIMIT', 0, MOST_DUE + n)
    for i = 1, #ids, 2 do
      if not ignored[ids[i]] and #rows < MOST_DUE then
        -- pcall: what was damaged by hand must not keep the others from being fired.
        local spec = redis.pcall('HMGET', key_of(base, ids[i]), 'rev', 'spec', 'wait')
        rows[#rows + 1] = {ids[i], spec[1] or '', digits(tonumber(ids[i + 1])), spec[2] or '', spec[3] or ''}
      end
    end
    return rows
  end

  register('takeSchedules', function(base, args)
    local now, ignored = clock.now(), {}
    for i = 2, #args do ignored[args[i]] = true end
    local due = schedulers.next(base, ignored, #args - 1)
    if not due then return {now, 0, 0, {}} end
    local role, at = take_role(base, args[1], now, due, false)
    return {now, role, at, due <= now and due_rows(base, now, ignored, #args - 1) or {}}
  end, {'allow-oom'})

  register('leaveSchedules', function(base, args)
    local timer = base .. ':schedules_timer'
    local found = redis.call('HMGET', timer, 'first', 'second')
    if found[1] == args[1] then redis.call('HDEL', timer, 'first', 'first_by') end
    if found[2] == args[1] then redis.call('HDEL', timer, 'second', 'second_by') end
    return 'ok'
  end, {'allow-oom'})

  register('listSchedulers', function(base, args)
    local reply, ids = redis.call('ZSCAN', base .. ':schedules', integer('cursor', args[1]), 'COUNT', 100), {}
    for i = 1, #reply[2], 2 do ids[#ids + 1] = reply[2][i] end
    return {reply[1] == '0' and '' or reply[1], ids}
  end, {'no-writes'})

  register('getSchedulers', function(base, args)
    if #args > MOST_DUE then fail('ARGUMENT', 'at most ' .. MOST_DUE .. ' schedulers a call, found ' .. #args) end
    local found = {}
    for i, id in ipairs(args) do
      local next_slot = next_of(base, id)
      found[i] = next_slot and {next_slot, redis.call('HGETALL', key_of(base, id))} or {}
    end
    return {clock.now(), found}
  end, {'no-writes'})

  request.register('upsertScheduler', upsert)
  request.register('removeScheduler', remove, {'allow-oom'})
  request.register('fireScheduler', fire)
  request.register('triggerScheduler', trigger)
end
