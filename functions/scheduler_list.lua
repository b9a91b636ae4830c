-- scheduler_list: reads the stored schedulers; see schedulers.lua for the structures.
--   listSchedulers   cursor -> { next cursor | '', ids }      an id may occur twice
--   getSchedulers    ids… -> { now, { next, flat record } | {} … }    at most 20; fewer when the budget was spent

do
  local PAGE = 20

  register('listSchedulers', function(base, args)
    local reply, ids = redis.call('ZSCAN', base .. ':schedules', integer('cursor', args[1]), 'COUNT', 100), {}
    for i = 1, #reply[2], 2 do ids[#ids + 1] = reply[2][i] end
    return {reply[1] == '0' and '' or reply[1], ids}
  end, {'no-writes'})

  register('getSchedulers', function(base, args)
    local call_budget = budget.of_answer()
    if #args > PAGE then fail('ARGUMENT', 'at most ' .. PAGE .. ' schedulers a call, found ' .. #args) end
    local found = {}
    for i, id in ipairs(args) do
      if i > 1 and budget.is_spent(call_budget) then break end
      local next_fire = schedulers.next_of(base, id)
      local flat = next_fire and redis.call('HGETALL', schedulers.key_of(base, id))
      found[i] = flat and {next_fire, flat} or {}
      budget.count_record(call_budget, flat or {})
    end
    return {clock.now(), found}
  end, {'no-writes'})
end
