-- worker_list: the workers of a queue.
--   listWorkers  silent_ms cursor -> { next cursor | '', { name, last seen ms, info, running }… }   seen within
--                `silent_ms`, the longest silent first; '' starts. A worker that renews between two steps comes again.
--                Earlier builds send no cursor, and get up to 1,000 rows without one.

do
  local PIECE, MOST = 64, 1000

  -- Return the number of runs of each worker in `fifo`.
  local function runs_in_fifo(base)
    local running, summary = {}, redis.pcall('XPENDING', base .. ':fifo', GROUP)
    for _, row in ipairs(not summary.err and summary[4] or {}) do running[row[1]] = tonumber(row[2]) end
    return running
  end

  -- Return the rank in `alive` behind a cursor, "<last seen ms> <name>". If the worker has renewed or left since, the
  -- workers that were last seen in the same millisecond come again. No worker is missed, because a worker that renews
  -- moves to the end.
  local function rank_behind(alive, cursor, since)
    local seen, name = string.match(cursor, '^(%-?%d+) (.*)$')
    if not seen and cursor ~= '' then fail('ARGUMENT', 'unknown cursor ' .. cursor) end
    if not seen then return redis.call('ZCOUNT', alive, '-inf', '(' .. since) end
    local score = redis.call('ZSCORE', alive, name)
    if score and tonumber(score) == tonumber(seen) then return redis.call('ZRANK', alive, name) + 1 end
    return redis.call('ZCOUNT', alive, '-inf', '(' .. seen)
  end

  -- Add the rows of up to n workers from a rank on. Return the names, the cursor of the last one, and the descriptions.
  local function add_workers(base, rank, n, running, rows)
    local alive, names = redis.call('ZRANGE', base .. ':alive', rank, rank + n - 1, 'WITHSCORES'), {}
    for i = 1, #alive, 2 do names[#names + 1] = alive[i] end
    if not names[1] then return names end
    local infos, others = redis.call('HMGET', base .. ':workers', unpack(names)), runs.counts_of(base, names)
    for i, name in ipairs(names) do
      rows[#rows + 1] = {name, tonumber(alive[2 * i]), infos[i] or '', (running[name] or 0) + others[i]}
    end
    return names, digits(tonumber(alive[#alive])) .. ' ' .. names[#names], infos
  end

  -- Return the rows of a step and the next cursor, '' at the end.
  local function step_of(base, since, cursor)
    local call_budget, rows, running = budget.of_answer(), {}, runs_in_fifo(base)
    local rank = rank_behind(base .. ':alive', cursor, since)
    repeat
      local names, at, infos = add_workers(base, rank, PIECE, running, rows)
      if #names < PIECE then return rows, '' end
      for _, info in ipairs(infos) do call_budget.bytes = call_budget.bytes + #(info or '') end
      rank, cursor = rank + PIECE, at
    until budget.is_spent(call_budget)
    return rows, cursor
  end

  register('listWorkers', function(base, args)
    local since, cursor, rows = digits(clock.now() - integer('silent', args[1])), args[2], nil
    if cursor then
      rows, cursor = step_of(base, since, cursor)
      return {cursor, rows}
    end
    rows = {}
    add_workers(base, rank_behind(base .. ':alive', '', since), MOST, runs_in_fifo(base), rows)
    return rows
  end, {'no-writes'})
end
