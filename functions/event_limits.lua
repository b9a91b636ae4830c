-- event_limits: lets an operator hold how many events a queue keeps.
--   setMaxEvents  channel number count by -> "ok"     count: 1 to 100,000, '' releases the hold; by: the author, see
--                 settings.lua
-- The number is the field `max_events` of `meta2`. The next checks of the events apply it, see events.lua.

request.register('setMaxEvents', function(base, args)
  local count, by = args[3], settings.author(args[4])
  if count ~= '' then
    local most = integer('count', count)
    if most < 1 or most > events.MAX_EVENTS then fail('ARGUMENT', 'count must be 1 to ' .. events.MAX_EVENTS) end
  end
  queue_flags.require(base)
  settings.note_hold(base, 'max_events', count, by, clock.now())
  if count == '' then
    redis.call('HDEL', base .. ':meta2', 'max_events')
  else
    redis.call('HSET', base .. ':meta2', 'max_events', count)
  end
  return 'ok'
end, {'allow-oom'})
