-- searching: the jobs of a name, in bounded steps.
--   searchJobs  state cursor count name backwards -> { next cursor | '', ids }
--     One step looks at up to `count` (at most 300) jobs of a state, in the order of `listJobs`, and answers those of
--     that name. A step may answer none and still have a next one.

register('searchJobs', function(base, args)
  local count = math.min(integer('count', args[3]), reading.DEEP_STEP)
  local cursor, met = reading.step(base, args[1], args[2], digits(count), args[5])
  local found, name = {}, args[4]
  for _, id in ipairs(met) do
    if redis.call('HGET', base .. ':job:' .. id, 'name') == name then found[#found + 1] = id end
  end
  return {cursor, found}
end, {'no-writes'})
