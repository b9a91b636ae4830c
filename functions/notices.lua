-- notices: wakes the process of an idle worker while a client still prepares the add of its job. A process that sleeps
-- needs longer to start than the server needs for the add. A client makes this call only if its last add was pushed,
-- see push.lua, and nothing depends on it.
--   message  "n"  a job will probably follow

-- Wake the process of the worker that would get the next job. The worker stays in `idle`.
register('giveNotice', function(base)
  local consumer = redis.call('ZRANGE', base .. ':idle', '-1', '-1')[1]
  if consumer then wakeup.send(base, consumer, 'n') end
  return 0
end)
