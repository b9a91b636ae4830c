-- obliterate: removes a queue with all of its keys, in bounded steps (see cleaning.lua).
--   obliterateQueue  channel number cursor force count { name }… -> { cursor, removed, refused }
--     Remove every job. The first step pauses claims. If jobs are running, it changes nothing and returns their number
--     in `refused`, unless force is "1": then they lose their leases and their workers are notified. The last step but
--     one writes `obliterated`. After it the caller relays the outbox, because flows of other queues wait for the
--     removed jobs. The last step removes the keys of the queue with these names, all together. In the millisecond of
--     the last event it removes no keys, and the caller repeats it. If clients add jobs without a pause, each step
--     finds new ones. So after one further `obliterated` the last step removes these jobs and the keys in one call.
--   sweepRemains  { name }… -> removed
--     Remove keys that a scan found after the last step. Keys that may belong to a new queue of the same name are kept.

do
  -- Return the number of jobs in any location, and of entries of runs.
  local function size(base)
    local n = redis.call('XLEN', base .. ':fifo') + redis.call('ZCARD', base .. ':runs')
    for name in pairs(cleaning.EXPECTED) do n = n + redis.call('ZCARD', base .. ':' .. name) end
    return n
  end

  -- Remove the keys of the queue, because no job is left in any location. Idle workers claim again and find a new
  -- queue.
  local function remove_keys(base, args)
    local idle, keys = redis.call('ZRANGE', base .. ':idle', 0, 999), {}
    for i = 6, #args do keys[#keys + 1] = base .. ':' .. args[i] end
    in_chunks('UNLINK', nil, nil, keys)
    for _, consumer in ipairs(idle) do wakeup.send(base, consumer, 'w') end
  end

  -- Return true if the last event was written in this millisecond. Ids of events begin with the millisecond, and a
  -- reader skips ids below its position. So an event of the new queue must have a later millisecond than the last one
  -- of this queue. A last event in the future shows that the clock was set back; waiting for it would take too long.
  local function is_event_recent(base)
    local last = redis.call('XREVRANGE', base .. ':events', '+', '-', 'COUNT', 1)[1]
    if not last then return false end
    local time = redis.call('TIME')
    return tonumber(string.match(last[1], '^%d+')) == time[1] * 1000 + math.floor(time[2] / 1000)
  end

  -- Do the last step. Return the reply.
  local function remove_last(base, args, reported)
    if is_event_recent(base) then return {'again ' .. reported, 0, 0} end
    remove_keys(base, args)
    return {'', 0, 0}
  end

  -- Remove the keys in the step that has removed the last jobs, if nothing is left to do for these. Return the reply.
  -- is_recent: is_event_recent at the begin of the call. Nobody has read the events that the call itself has written.
  local function remove_crowded(base, args, total, is_recent, step)
    wakeup.finish(base, step)
    if is_recent or step.seen.posted or wakeup.can_advance(base, step.seen) or size(base) > 0 then
      return {'again ' .. total .. ' 1', step.removed, 0}
    end
    remove_keys(base, args)
    return {'', step.removed, 0}
  end

  request.register('obliterateQueue', function(base, args)
    local cursor, force, step = args[3], args[4], cleaning.begin(base, args[5])
    if cursor == '' then
      local running = runs.count(base)
      if running > 0 and force ~= '1' then return {'', 0, running} end
      redis.call('HSET', base .. ':meta2', 'paused', '1')
    end
    local at, before, position = string.match(cursor, '^(%d+) (%d+) (.*)$')
    -- late: how often jobs were found after the event `obliterated`.
    local reported, late = string.match(cursor, '^%a+ (%d+) ?(%d*)$')
    if reported and wakeup.can_advance(base, step.seen) then
      cleaning.advance_flows(base, step)    -- other queues have jobs of the flows
      wakeup.finish(base, step)
      return {'again ' .. digits(reported + step.removed) .. ' ' .. late, step.removed, 0}
    end
    if reported and size(base) == 0 then return remove_last(base, args, reported) end
    local left, is_recent = step.left, late == '1' and is_event_recent(base)
    before = before or reported or 0
    -- The walk has no bound, because jobs that arrive during the obliteration are removed too.
    local number, rest = cleaning.walk_all(base, cleaning.ALL, tonumber(at) or 1, position or '', nil, step)
    -- A whole walk has met nothing. What is left was written by hand, and no walk would remove it.
    if reported and not number and step.left == left then return remove_last(base, args, reported) end
    -- Before the end is reported, so that the report counts the jobs that the flows remove.
    if cleaning.advance_flows(base, step) and not number then number, rest = #cleaning.ALL, '' end
    local total = digits(before + step.removed)
    if late == '1' and not number then return remove_crowded(base, args, total, is_recent, step) end
    if not number then events.note(step.lines, 'obliterated', '', total) end
    wakeup.finish(base, step)
    if number then return {number .. ' ' .. total .. ' ' .. rest, step.removed, 0} end
    return {'reported ' .. total .. (reported and ' 1' or ' 0'), step.removed, 0}
  end, {'allow-oom'})

  local OF_WRITES = {write = true, written = true, transaction = true}
  local ALWAYS = {metrics = true, key = true, keyrate = true, keybucket = true}

  register('sweepRemains', function(base, args)
    local keys, unused, begun = {}, size(base) == 0, exists(base .. ':meta2')
    for _, name in ipairs(args) do
      local kind, rest = string.match(name, '^([^:]*):(.*)$')
      local free = unused or ALWAYS[kind]
      -- A stored reply may belong to the queue that has begun since. Without it, a repeated call would be executed
      -- twice. It expires by itself.
      if kind == 'call' then free = not begun end
      -- The ended streams of removed jobs remain for a minute, and expire.
      if kind == 'chunks' then free = unused end
      if kind == 'job' or kind == 'logs' or kind == 'signals' or kind == 'steps' then
        free = not checking.is_there(base, rest)
      end
      if OF_WRITES[kind] then free = not writes.exists(base, kind, rest) end
      if free then keys[#keys + 1] = base .. ':' .. name end
    end
    return in_chunks('UNLINK', nil, nil, keys)
  end, {'allow-oom'})
end
