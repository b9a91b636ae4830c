-- searching: finds jobs by name, in bounded steps.
--   searchJobs  state cursor count name backwards -> { next cursor | '', ids, looked }
--     One step looks at up to `count` (at most 300) jobs of a state, in the order of `listJobs`, and returns those with
--     that name, and the number of jobs it has looked at. It ends earlier when its budget is spent. A step may return
--     no ids and still have a next cursor.

do
  local PIECE = 50               -- jobs between two looks at the clock

  register('searchJobs', function(base, args)
    local state, cursor, name, backwards = args[1], args[2], args[4], args[5]
    local count = math.min(integer('count', args[3]), reading.DEEP_STEP)
    local found, looked, call_budget, met = {}, 0, budget.of_answer(), nil
    repeat
      cursor, met = reading.step(base, state, cursor, digits(math.min(PIECE, count - looked)), backwards)
      for _, id in ipairs(met) do
        local own = redis.call('HGET', base .. ':job:' .. id, 'name') or plain.name_of(base, id)
        if own == name then found[#found + 1] = id end
      end
      looked = looked + math.max(#met, 1)
    until cursor == '' or looked >= count or budget.is_spent(call_budget)
    return {cursor, found, looked}
  end, {'no-writes'})
end
