-- schedulers: rules by which a queue adds jobs itself. Clients compute cron expressions. The functions compare, fire
-- and store the fire times, so each fire time adds one job however many processes try.
--   schedules        zset  id -> next fire time, ms; +inf: the scheduler has ended and is kept for its history
--   scheduler:<id>   hash  rev (changes with each upsert); spec (the schedule, opaque here), limit, overlap ("1": skip
--                    a fire time while the last job has not ended; "a<ms>[ <end>]": the next fire time is this long
--                    after the end of the last job, and not after `end`); paused ("1"); the template: name, data, opts,
--                    extra, wait; the history: fired, skipped, last_slot, last_job, triggered
--   deduped          hash  the last job of a scheduler "a<ms>" -> SEP and the scheduler's id, until it ends
--   schedule_roles  hash  first, second: the processes that call at the next fire time, the second one a little later
--                    in case the first one died; first_by, second_by: when they call at the latest; since: since when a
--                    process has been present; until: until when a process has promised to call
--   meta2  hash  schedulers: the last rev
--   upsertScheduler  channel number process id rev next { spec limit overlap name data opts extra wait } new_next
--                    [by text]
--                    -> { "ok" | "moved", now, at }        rev, next: as the caller read them, '' for none
--                    by, text: the author of a scheduler that code declares, and its schedule for people
--   removeScheduler  channel number id -> 0 | 1
--   pauseScheduler   channel number id [by] -> 0 | 1     by: see settings.lua
--   resumeScheduler  channel number process id rev next -> { "ok" | "moved", now, at }
--   fireSchedulers   channel number n { id rev fire_time next skipped count fire_times… }*n -> { now, done… }
--     fire_time: the stored next fire time that the caller saw; next: the one to store, '' when the schedule has ended
--     done: the number of fire times that are done, or "moved", or the error of a scheduler that cannot be read. If
--     fewer than all are done, the first of the rest is the stored next fire time. Schedulers without an entry in the
--     reply are unchanged, because the budget of the call was spent before them.
--   triggerScheduler channel number id -> { now, job id, status, name, data, opts } | {}     status: "added", or why
--       not
--   takeSchedules    process fire_time id spread -> { now, role, at, due { id, rev, fire_time, spec, wait }…, since }
--     fire_time, id: the scheduler after which to continue, '' for all. spread: '' selects the oldest due schedulers; a
--       number selects another part of them unless the process is first, so two processes do not fire the same ones
--     role: 1 first, 2 second, 0 neither; at: when to call again, ms, 0: nothing is scheduled
--     since: since when a process has been present without a gap, ms
--   leaveSchedules   process -> "ok"       a process signs off and gives up its role
-- The job of a fire time has the id "<scheduler id>@<fire time>". In this file, fire times are in ms.

local schedulers = {}
do
  local PATROL_MS = 60000
  local BEHIND_MS = 200
  local LATE_MS = 1000
  local PROMPT_MS = 5000           -- how much later than promised a process may call
  local FIRING_MS = 90000          -- how long a process counts as present after it received something to fire
  local MOST_DUE = 100
  local MOST_FIRE_TIMES = 100
  local LARGE = 65536              -- bytes of data that the stored reply of a trigger does not contain
  local EQUAL_BYTES = 8            -- see request.remember_packed: a first byte and the beginning of a time
  local ENDED = '+inf'
  local TEMPLATE = {'spec', 'limit', 'overlap', 'name', 'data', 'opts', 'extra', 'wait'}

  local function unpacked(extra)
    return add.extra(extra)
  end

  local function mode_of(base)
    return redis.call('HGET', base .. ':meta2', 'mode')
  end

  local function key_of(base, id)
    return base .. ':scheduler:' .. id
  end

  schedulers.key_of = key_of

  local function due_at(base, rank)
    local found = redis.call('ZRANGE', base .. ':schedules', rank, rank, 'WITHSCORES')
    return found[2] and found[2] ~= 'inf' and tonumber(found[2]) or nil
  end

  -- Return the earliest next fire time, nil when nothing is scheduled.
  function schedulers.next(base)
    return due_at(base, 0)
  end

  local function next_of(base, id)
    local score = redis.call('ZSCORE', base .. ':schedules', id)
    if not score then return nil end
    return score == 'inf' and '' or digits(tonumber(score))
  end

  schedulers.next_of = next_of

  -- Give a process the free role or its own. `first`: it knows of an earlier fire time than the first process does.
  -- Return the role, when to call again, and since when a process has been present.
  local function take_role(base, process, now, due, first)
    local timer = base .. ':schedule_roles'
    local found = redis.call('HMGET', timer, 'first', 'first_by', 'second', 'second_by', 'since', 'until')
    local function free(holder, by)
      -- An instant beyond the patrol interval was noted before the clock was set back.
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
    if #args ~= 15 and #args ~= 17 then
      fail('ARGUMENT', 'upsertScheduler takes 15 or 17 arguments, found ' .. #args)
    end
    local by = settings.author(args[16])
    local now, key = clock.now(), key_of(base, id)
    add.check_mode(mode_of(base), 1, {unpacked(args[13])})
    local stored_next = next_of(base, id)
    if not stored_next then redis.call('UNLINK', key) end
    if (stored_next and redis.call('HGET', key, 'rev') or '') ~= rev or (stored_next or '') ~= seen_next then
      return {'moved', now, 0}
    end
    local fields = {'rev', redis.call('HINCRBY', base .. ':meta2', 'schedulers', 1)}
    for i, name in ipairs(TEMPLATE) do
      fields[#fields + 1] = name
      fields[#fields + 1] = args[6 + i]
    end
    if redis.call('HEXISTS', key, 'paused') == 1 then score = ENDED end
    redis.call('HSET', key, unpack(fields))
    settings.declare_schedule(base, id, by and args[17], by, now)
    redis.call('ZADD', base .. ':schedules', score, id)
    local due = schedulers.next(base)
    return {'ok', now, due and select(2, take_role(base, process, now, due, true)) or 0}
  end

  local function remove(base, args)
    local id, zset = args[3], base .. ':schedules'
    local removed = redis.call('ZREM', zset, id)
    settings.note_hold(base, 'schedule ' .. id, '')
    settings.declare_schedule(base, id)
    redis.call('UNLINK', key_of(base, id))
    if removed == 1 and not exists(zset) then redis.call('UNLINK', base .. ':schedule_roles') end
    return removed
  end

  local function has_not_ended(base, id)
    if not id or id == '' then return false end
    local state = record.location(base, id)
    return state and state ~= 'completed' and state ~= 'failed'
  end

  -- For a scheduler whose next fire time depends on the end of its last job: return the wait in ms, and the end of the
  -- schedule or nil; otherwise return nil.
  local function after_end(overlap)
    local wait, last = string.match(overlap or '', '^a(%d+) ?(%d*)$')
    if wait then return tonumber(wait), tonumber(last) end
  end

  -- Return the next fire time if the last job ends now, nil if that is after the end of the schedule.
  local function fire_time_after(wait, last, now)
    local fire_time = now + wait
    if last and fire_time > last then return nil end
    return fire_time
  end

  -- Set the next fire time when this job has ended.
  local function wait_for(base, id, job, call)
    redis.call('HSET', queue_flags.create(base, 'deduped', call.seen), job, SEP .. id)
  end

  -- Make the first process look at the schedules again.
  local function wake_scheduler_runner(base)
    for _, consumer in ipairs(redis.call('ZREVRANGE', base .. ':alive', 0, 9)) do
      if wakeup.send(base, consumer, 's') then return end
    end
  end

  -- Set the next fire time of a scheduler that waits for the end of this job.
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
    local id, by = args[3], settings.author(args[4])
    if not next_of(base, id) then return 0 end
    if by or redis.call('HEXISTS', key_of(base, id), 'paused') == 0 then
      settings.note_hold(base, 'schedule ' .. id, 'paused', by, clock.now())
    end
    redis.call('HSET', key_of(base, id), 'paused', '1')
    redis.call('ZADD', base .. ':schedules', ENDED, id)
    return 1
  end

  local function resume(base, args)
    local process, id, key, now = args[3], args[4], key_of(base, args[4]), clock.now()
    local score = args[6] == '' and ENDED or digits(integer('next', args[6]))
    local stored = redis.call('HMGET', key, 'rev', 'paused', 'overlap', 'last_job')
    queue_flags.require(base)
    if not next_of(base, id) or not stored[2] or stored[1] ~= args[5] then return {'moved', now, 0} end
    -- The end of its last job sets its next fire time.
    local waits = after_end(stored[3]) and has_not_ended(base, stored[4])
    if waits then redis.call('HSET', queue_flags.create(base, 'deduped'), stored[4], SEP .. id) end
    redis.call('HDEL', key, 'paused')
    settings.note_hold(base, 'schedule ' .. id, '')
    if waits then return {'ok', now, 0} end
    redis.call('ZADD', base .. ':schedules', score, id)
    local due = schedulers.next(base)
    return {'ok', now, due and select(2, take_role(base, process, now, due, true)) or 0}
  end

  -- Read the fire times [from…] of one scheduler, as texts. nil: the clock was set back, and one of them is in the
  -- future.
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

  -- Read and check the arguments of fireSchedulers.
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

  -- Return a number that spreads the fire times of schedulers: always the same for the same fire time.
  local function spread(id, most)
    return tonumber(string.sub(redis.sha1hex(id), 1, 12), 16) % (most + 1)
  end

  -- Add one job of the template, delayed by a random part of its jitter. Returns what add.one returns.
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

  -- Return the stored scheduler, checked and with its extra unpacked, or {} if it does not exist.
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

  -- Add the jobs of one scheduler's fire times and store the next one. Return the number of fire times that are done.
  local function fire_one(base, firing, stored, call, call_budget)
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
      if i > 1 and budget.is_spent(call_budget) then
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
    local firings, call_budget, mode = firings_of(args, now), budget.new(), mode_of(base)
    local call, answer = queue_flags.call(base), {now}
    for i, firing in ipairs(firings) do
      if i > 1 and budget.is_spent(call_budget) then break end
      -- A scheduler that was damaged by hand must not stop the others. It is read before anything is written for it.
      local readable, stored = pcall(read, base, firing.id, mode)
      if not readable then
        answer[i + 1] = type(stored) == 'table' and stored.err or tostring(stored)
      elseif not firing.fire_times or stored.rev ~= firing.rev or next_of(base, firing.id) ~= firing.seen then
        answer[i + 1] = 'moved'
      else
        answer[i + 1] = fire_one(base, firing, stored, call, call_budget)
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
    local reply = {call.now, id, status, stored.name, stored.data, stored.opts}
    if #stored.data <= LARGE then return reply end
    -- Packing and storing data of 1 MiB takes 2 ms. Only a repeated call needs the stored reply.
    local packed = cmsgpack.pack({call.now, id, status, stored.name, false, stored.opts})
    return reply, args[2] .. ' ' .. packed, EQUAL_BYTES
  end

  -- Return the data of a job, nil if it does not exist.
  local function data_of(base, id)
    local data = redis.call('HGET', base .. ':job:' .. id, 'data')
    if data then return data end
    local flat = plain.view(base, id)
    for i = 1, #flat, 2 do
      if flat[i] == 'data' then return flat[i + 1] end
    end
  end

  -- Return the reply to a repeated triggerScheduler call. If its data are large, they are read from the job, because
  -- the scheduler may have changed since, or from the scheduler if the job is gone.
  local function triggered(base, args, reply)
    if reply[5] == false then
      reply[5] = data_of(base, reply[2]) or redis.call('HGET', key_of(base, args[3]), 'data') or ''
    end
    return reply
  end

  -- Return the rank of the first scheduler after this one.
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
      -- pcall: a scheduler that was damaged by hand must not stop the others.
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
    local timer = base .. ':schedule_roles'
    local found = redis.call('HMGET', timer, 'first', 'second')
    if found[1] == args[1] then redis.call('HDEL', timer, 'first', 'first_by') end
    if found[2] == args[1] then redis.call('HDEL', timer, 'second', 'second_by') end
    -- No process is present any more. Fire times from now on are missed until a process calls.
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
  request.register('triggerScheduler', trigger, nil, triggered)
end
