-- searching: finds jobs by name, in bounded steps.
--   searchJobs  state cursor count name backwards -> { next cursor | '', ids }
--     One step looks at up to `count` (at most 300) jobs of a state, in the order of `listJobs`, and returns those with
--     that name. A step may return no ids and still have a next cursor.

register('searchJobs', function(base, args)
  local count = math.min(integer('count', args[3]), reading.DEEP_STEP)
  local cursor, met = reading.step(base, args[1], args[2], digits(count), args[5])
  local found, name = {}, args[4]
  for _, id in ipairs(met) do
    local own = redis.call('HGET', base .. ':job:' .. id, 'name') or plain.name_of(base, id)
    if own == name then found[#found + 1] = id end
  end
  return {cursor, found}
end, {'no-writes'})
