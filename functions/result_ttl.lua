-- result_ttl: how long the result of an ended job is kept.
--   setResultTtl  channel number id ttl -> status     ttl: ms from now on, or '' = the retention of its set again
--     status  "ok", "missing", or "state <state>" when the job has not ended

request.register('setResultTtl', function(base, args)
  local id = args[3]
  local ttl = args[4] ~= '' and integer('ttl', args[4]) or nil
  if ttl and ttl < 1 then fail('ARGUMENT', 'a time to live must be more than zero, found ' .. args[4]) end
  local state = plain.open(base, id)
  if not state then return 'missing' end
  if state ~= 'completed' and state ~= 'failed' then return 'state ' .. state end
  if finish.remove_over(base, id) then return 'missing' end
  finish.change_ttl(base, id, state, clock.now(), ttl)
  return 'ok'
end)
