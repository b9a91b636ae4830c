-- changes: changes the priority or the delay of a job that has not started.
--   changePriority  channel number id priority -> status
--   changeDelay     channel number id delay_ms -> status     0 = startable now
-- status: "ok", "missing", or "state <state>" when the job runs or has ended. O(log N).

-- Return the route of a job after its priority changed. A keyed job keeps its position among jobs of equal priority in
-- its key's line. A LIFO job remains LIFO only with priority 0.
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

-- Return the state if the job can be changed; otherwise nil and the status.
local function changeable(base, id, call)
  local state = plain.open(base, id, call.seen)
  if not state then return nil, 'missing' end
  if not locations.is_unstarted(state) then return nil, 'state ' .. state end
  return state
end

request.register('changePriority', function(base, args)
  local id, priority = args[3], integer('priority', args[4])
  local call, key = queue_flags.call(base), base .. ':job:' .. id
  local state, status = changeable(base, id, call)
  if not state then return status end
  local before = redis.call('HGET', key, 'route')
  local route = route_with(before, priority)
  if route == (before or nil) then return 'ok' end
  local entry
  if state ~= 'delayed' and state ~= 'waiting-children' then entry = locations.leave(base, id, call) end
  if route then redis.call('HSET', key, 'route', route) else redis.call('HDEL', key, 'route') end
  if entry then
    record.keep_added(base, id, entry)
    redis.call('HSET', key, 'place', routes.enter(base, id, route, call))
  end
  events.note(call.lines, 'changed', id, 'priority ' .. digits(priority))
  wakeup.finish(base, call)
  return 'ok'
end)

request.register('changeDelay', function(base, args)
  local id, delay = args[3], integer('delay', args[4])
  local call, key = queue_flags.call(base), base .. ':job:' .. id
  local state, status = changeable(base, id, call)
  if not state then return status end
  if state == 'waiting-children' then return 'state ' .. state end
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
      routes.forget_turn(base, id)
    end
    redis.call('HSET', key, 'place', scheduled.push(base, id, call.now + delay, call))
    events.note(call.lines, 'changed', id, 'delay ' .. digits(delay))
  end
  wakeup.finish(base, call)
  return 'ok'
end)
