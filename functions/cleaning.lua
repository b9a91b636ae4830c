-- cleaning: removes many jobs, or starts many anew, in steps. The client repeats the call with the returned cursor
-- until that is ''. The first step gets cursor ''. The cursor contains the state of the operation (its start, the count
-- so far).
--   drainJobs   channel number cursor delayed count -> { cursor, removed }
--     Remove waiting jobs, with delayed "1" also those in `scheduled` and `suspended`. All jobs that waited at
--     the first step are removed; later ones may stay, and so may a suspended job that is resumed before the
--     last step. The jobs that no parent needs any more are removed and counted too. The last step writes the event
--     `drained`.
--   cleanJobs   channel number cursor state grace_ms limit count -> { cursor, ids }
--     Remove jobs that had ended in this state at least grace_ms before the first step, the oldest first. The last step
--     writes the event `cleaned`.
--   cleanUnstarted  channel number cursor state grace_ms limit count -> { cursor, ids }
--     Remove jobs that wait in this state (waiting, prioritized, key-waiting with the rate-limited ones, delayed,
--     waiting-children, suspended) and were added at least grace_ms before the first step, in the order in which they
--     would start. Jobs with a key are removed in the order in which they began to wait.
--   promoteJobs channel number cursor limit count -> { cursor, number }
--     Start the jobs now that were delayed at the first step, in the order of their due times. limit -1 = all.
--   retryJobs   channel number cursor state limit count -> { cursor, number }
--     Start the jobs anew that had ended in this state at the first step, the newest first. limit -1 = all.
-- One step handles at most `count` jobs (1 to 500), and ends early when its budget is spent, see budget.lua.

local cleaning = {}
do
  local FIRST_PIECE, LARGEST_PIECE, MOST = 8, 32, 500
  local READ_AT_ONCE, MOST_BYTES_READ = 2, 524288

  function cleaning.begin(base, count)
    local n = integer('count', count)
    if n < 1 or n > MOST then fail('ARGUMENT', 'count must be 1 to ' .. MOST .. ', found ' .. count) end
    local step = queue_flags.call(base)
    step.left, step.budget, step.removed = n, budget.new(), 0
    return step
  end

  -- Call take(n), which returns how many it handled, until it handles less than n (true) or the step is long enough
  -- (false). Each step handles one piece at least.
  local function in_pieces(step, take)
    local piece = FIRST_PIECE
    while step.left > 0 and not (step.has_begun and budget.is_spent(step.budget))
      and (not step.most or step.removed < step.most) do
      step.has_begun = true
      local wanted = math.min(piece, step.left, step.most and step.most - step.removed or step.left)
      local met = take(wanted)
      step.left = step.left - met
      if met < wanted then return true end
      piece = math.min(piece * 2, LARGEST_PIECE)
    end
    return false
  end

  -- Remove jobs that have left their locations.
  local function remove(base, ids, step)
    if #ids == 0 then return end
    for _, id in ipairs(ids) do
      local key = base .. ':job:' .. id
      local call_budget = step.budget
      call_budget.bytes = call_budget.bytes + redis.call('HSTRLEN', key, 'data') + redis.call('HSTRLEN', key, 'result')
    end
    removal.strip(base, ids, step)
    step.removed = step.removed + #ids
  end

  -- Note the ids of removed jobs for the reply, if it lists them.
  local function note_cleaned(ids, step)
    for _, id in ipairs(step.cleaned and ids or {}) do step.cleaned[#step.cleaned + 1] = id end
  end

  local EXPECTED = {scheduled = '^delayed ', lifo = '^waiting i$', prioritized = '^prioritized ',
    keyed = '^key%-waiting ', parents = '^waiting%-children ', suspended = '^suspended ', returned = '^waiting r$',
    completed = '^completed ', failed = '^failed '}

  cleaning.EXPECTED = EXPECTED

  -- Return how to handle a member of a structure. "go": remove the job. "stay": the job was added after `bound` (ms, or
  -- nil for all jobs). "elsewhere": the record names another location, so only the member is removed. "lost": the job
  -- has no record.
  local function judge(base, structure, id, bound)
    local found = redis.call('HMGET', base .. ':job:' .. id, 'place', 'added', 'route')
    if not found[1] then return 'lost' end
    if not string.find(found[1], EXPECTED[structure]) then return 'elsewhere' end
    local added = bound and tonumber(found[2] or keyed.added_of(found[3] or ''))
    if added and added > bound then return 'stay' end
    return 'go'
  end

  -- Remove what belongs to a job of this structure in other structures of its key.
  local leaving = {}

  function leaving.scheduled(base, id, step) keyed.wake_up(base, id, step) end

  function leaving.keyed(base, id, step) keyed.leave(base, id, step) end

  -- Remove the jobs of these members of a zset. Return how many stay, and the ids of the removed jobs.
  local function take_members(base, structure, members, bound, step)
    local going, ids, staying = {}, {}, 0
    for _, member in ipairs(members) do
      local id = locations.id_of(structure, member)
      if step.seen.compact then compact.open(base, id) end
      local verdict = judge(base, structure, id, bound)
      if verdict == 'stay' then
        staying = staying + 1
      else
        going[#going + 1] = member
        if verdict ~= 'elsewhere' then ids[#ids + 1] = id end
        if verdict == 'go' and leaving[structure] then leaving[structure](base, id, step) end
        if verdict == 'lost' and structure == 'scheduled' then keyed.wake_up(base, id, step) end
      end
    end
    in_chunks('ZREM', base .. ':' .. structure, nil, going)
    remove(base, ids, step)
    note_cleaned(ids, step)
    keyed.review(base, step)
    return staying, ids
  end

  -- Return the position of a walk in a zset between two steps: "<score> <member>" of the last member that it passed, ''
  -- before the first. (A rank would skip members if some of the counted members have been removed.)
  local function position_at(key, passed, reversed)
    if passed == 0 then return '' end
    local at = digits(passed - 1)
    local last = redis.call(reversed and 'ZREVRANGE' or 'ZRANGE', key, at, at, 'WITHSCORES')
    return last[2] .. ' ' .. last[1]
  end

  -- Return the number of members up to that position now.
  local function passed_at(key, position, reversed)
    local score, member = string.match(position, '^(%S+) (.*)$')
    if not score then return 0 end
    local mark = member .. SEP    -- sorts directly after the member
    redis.call('ZADD', key, score, mark)
    local passed = redis.call(reversed and 'ZREVRANK' or 'ZRANK', key, mark)
    redis.call('ZREM', key, mark)
    if reversed and redis.call('ZSCORE', key, member) == score then passed = passed + 1 end
    return passed
  end

  -- Walk through a zset from a position on, in the order in which its jobs would start. Return where to continue, nil
  -- at the end.
  local function walk_zset(base, structure, at, bound, step)
    local key, newest_first = base .. ':' .. structure, structure == 'lifo'
    local passed = passed_at(key, at, newest_first)
    local over = in_pieces(step, function(n)
      local range = newest_first and 'ZREVRANGE' or 'ZRANGE'
      local members = redis.call(range, key, digits(passed), digits(passed + n - 1))
      if #members > 0 then passed = passed + (take_members(base, structure, members, bound, step)) end
      return #members
    end)
    return not over and position_at(key, passed, newest_first) or nil
  end

  local function waiting_entry(base, entry, repeats)
    local raw, fields = entry[1], entry[2]
    local id = entries.job_of(raw, fields)
    local is_plain = fields[1] ~= '' and redis.call('SISMEMBER', base .. ':recorded', raw) == 0
    return {raw = raw, id = id, bytes = is_plain and #fields[2], added = tonumber(string.match(raw, '%d+$')),
      kept = repeats and is_plain and redis.call('HEXISTS', base .. ':results', id) == 1}
  end

  -- Return up to n waiting entries of `fifo` in a range as { raw id, job, bytes or nil if it has a record, added }, and
  -- n if there may be more, otherwise their number. With `kept` true the job has completed, and its entry comes again
  -- because the group was destroyed. Reading an entry copies its payload, and nothing shows the size before. So few
  -- entries are read at once, and no more after a large one.
  local function waiting_entries(base, from, last, n, repeats)
    local rows, bytes = {}, 0
    while #rows < n and bytes < MOST_BYTES_READ do
      local wanted = math.min(READ_AT_ONCE, n - #rows)
      local found = redis.call('XRANGE', base .. ':fifo', from, last, 'COUNT', wanted)
      for _, entry in ipairs(found) do
        rows[#rows + 1] = waiting_entry(base, entry, repeats)
        bytes = bytes + #entry[2][2]
      end
      if #found < wanted then return rows, #rows end
      from = '(' .. rows[#rows].raw
    end
    return rows, n
  end

  -- Count a plain job as removed, and add it to a list for removal.strip_plain.
  local function note_removed(row, list, step)
    step.budget.bytes = step.budget.bytes + row.bytes
    step.removed = step.removed + 1
    list[#list + 1] = row.id
  end

  -- Walk through the waiting entries of `fifo`; at: the last entry that existed, and the last one that stays. bound:
  -- nil if completed jobs are removed too.
  local function walk_fifo(base, _, at, bound, step)
    local fifo = base .. ':fifo'
    if at == '' then
      local last = redis.call('XREVRANGE', fifo, '+', '-', 'COUNT', 1)[1]
      if not last then return nil end
      at = last[1]
    end
    local last, passed = string.match(at, '^(%S+) ?(.*)$')
    local over = in_pieces(step, function(n)
      local raw, ids, plain_ids, from = {}, {}, {}, entries.last_delivered(fifo)
      local repeats = bound and entries.may_repeat(base, from)
      if passed ~= '' and entries.before(from, passed) then from = passed end
      local rows, met = waiting_entries(base, '(' .. from, last, n, repeats)
      for _, row in ipairs(rows) do
        if row.kept then passed = row.raw else raw[#raw + 1] = row.raw end
        local location = not row.bytes and redis.call('HGET', base .. ':job:' .. row.id, 'place')
        if row.bytes and not row.kept then
          note_removed(row, plain_ids, step)
        elseif not row.bytes and (not location or location == 'waiting p' .. row.raw) then
          ids[#ids + 1] = row.id
        end
      end
      entries.delete(fifo, raw)
      removal.strip_plain(base, plain_ids, step)
      remove(base, ids, step)
      return met
    end)
    if over then return nil end
    return passed == '' and last or last .. ' ' .. passed
  end

  -- Walk through the waiting entries of `fifo`, and keep the ones after `bound`; at: the last entry of the walk.
  local function sift_fifo(base, _, at, bound, step)
    local fifo = base .. ':fifo'
    local over = in_pieces(step, function(n)
      -- Workers may have claimed entries since the last piece.
      local going, ids, plain_ids, gone, delivered = {}, {}, {}, {}, entries.last_delivered(fifo)
      if at == '' or entries.before(at, delivered) then at = delivered end
      local rows, met = waiting_entries(base, '(' .. at, '+', n, entries.may_repeat(base, delivered))
      for _, row in ipairs(rows) do
        at = row.raw
        local known = row.bytes and {} or redis.call('HMGET', base .. ':job:' .. row.id, 'place', 'added')
        local early = tonumber(known[2] or row.added) <= bound
        if row.bytes and early and not row.kept then
          going[#going + 1], gone[#gone + 1] = at, row.id
          note_removed(row, plain_ids, step)
        elseif not row.bytes and (not known[1] or (known[1] == 'waiting p' .. at and early)) then
          going[#going + 1], gone[#gone + 1], ids[#ids + 1] = at, row.id, row.id
        end
      end
      entries.delete(fifo, going)
      removal.strip_plain(base, plain_ids, step)
      remove(base, ids, step)
      note_cleaned(gone, step)
      return met
    end)
    return not over and at or nil
  end

  -- Remove the completed plain jobs, including the ones that are held for a client.
  local function walk_results(base, _, _, _, step)
    local over = in_pieces(step, function(n)
      if not step.seen.results then return 0 end
      local held = step.seen.held
      step.seen.held = nil
      local gone = results.remove_oldest(base, n, step.seen)
      step.seen.held = held
      step.removed = step.removed + gone
      return gone > 0 and n or 0
    end)
    return not over and '-' or nil
  end

  -- Give the completed plain jobs records, so that the walks through `completed` meet them. Return true if all have
  -- one.
  local function record_results(base, state, step)
    if state ~= 'completed' or not step.seen.results then return true end
    repeat
      local met = plain.record_some(base, FIRST_PIECE, step.budget)
      if met == 0 then return true end
      step.has_begun = true
    until budget.is_spent(step.budget)
    return false
  end

  -- Return up to n rows of the structure with the runs, see runs.lua.
  local function rows_of(base, structure, n, step)
    if structure == 'runs' then return runs.rows_from(base, 0, n, step.now) end
    local rows = redis.pcall('XPENDING', base .. ':fifo', GROUP, '-', '+', n)
    return rows.err and {} or rows
  end

  -- End the leases of all runs, and notify their workers.
  local function walk_runs(base, structure, _, _, step)
    local over = in_pieces(step, function(n)
      local rows, ids = rows_of(base, structure, n, step), {}
      for i, row in ipairs(rows) do
        -- A plain job gets its record here, and its payload may be large.
        if i > 1 and budget.is_spent(step.budget) then break end
        local id, key, entry = plain.record_pending(base, row, step)
        if id then
          local is_active, kept = redis.call('HGET', base .. ':job:' .. id, 'place') == 'active ' .. entry, false
          if is_active then
            wakeup.send(base, row[2], 'x ' .. entry)
            ids[#ids + 1] = id
            kept = stopping.is_limited(base, entry, step) and stopping.keep(base, id, entry, row, step)
          end
          if key and not kept then keyed.release(base, {key}, step) end
        end
        runs.drop(base, row)
      end
      remove(base, ids, step)
      keyed.review(base, step)
      return #rows
    end)
    return not over and '-' or nil
  end

  -- Walk through the structures [at…] of a list of { walk, structure } as far as the step permits. Jobs move only
  -- forward along this list: delayed jobs come before ready ones, and returned jobs come last. Return the number of the
  -- structure to continue with and the position in it; nil when all are done.
  function cleaning.walk_all(base, walks, at, position, bound, step)
    for number = at, #walks do
      local rest = walks[number][1](base, walks[number][2], position, bound, step)
      if rest then return number, rest end
      position = ''
    end
    return nil
  end

  -- Let the flows whose jobs were removed remove the jobs that no parent needs any more, and count these. Return true
  -- if the next step must remove more. wakeup.finish would not count, and it would wake a worker for that work.
  function cleaning.advance_flows(base, step)
    step.cancelled = 0
    wakeup.advance_flows(base, step)
    step.removed, step.seen.flow_work = step.removed + step.cancelled, nil
    return step.ends_jobs
  end

  local WAITING = {{walk_zset, 'scheduled'}, {walk_fifo, 'fifo'}, {walk_zset, 'lifo'}, {walk_zset, 'prioritized'},
    {walk_zset, 'keyed'}, {walk_zset, 'returned'}}

  cleaning.ALL = {{walk_runs, 'fifo'}, {walk_runs, 'runs'}, {walk_zset, 'parents'}, {walk_zset, 'suspended'},
    WAITING[1], WAITING[2], WAITING[3], WAITING[4], WAITING[5], WAITING[6], {walk_results, 'results'},
    {walk_zset, 'completed'}, {walk_zset, 'failed'}}

  -- `suspended` is last, so that the numbers in the cursors of a drain stay the same.
  local ALL_WAITING = {WAITING[1], WAITING[2], WAITING[3], WAITING[4], WAITING[5], WAITING[6], {walk_zset, 'suspended'}}

  request.register('drainJobs', function(base, args)
    local cursor, delayed, step = args[3], args[4], cleaning.begin(base, args[5])
    local at, bound, before, position = string.match(cursor, '^(%d+) (%d+) (%d+) (.*)$')
    if not at then at, bound, before, position = delayed == '1' and 1 or 2, step.now, 0, '' end
    local walks = delayed == '1' and ALL_WAITING or WAITING
    local number, rest = cleaning.walk_all(base, walks, tonumber(at), position, tonumber(bound), step)
    -- Before the end is reported, so that the report counts the jobs that the flows remove.
    if cleaning.advance_flows(base, step) and not number then number, rest = #walks, '' end
    local total = before + step.removed
    if not number and total > 0 then events.note(step.lines, 'drained', '', digits(total)) end
    wakeup.finish(base, step)
    if not number then return {'', step.removed} end
    return {number .. ' ' .. digits(tonumber(bound)) .. ' ' .. digits(total) .. ' ' .. rest, step.removed}
  end, {'allow-oom'})

  request.register('cleanJobs', function(base, args)
    local state, grace, step = args[4], integer('grace', args[5]), cleaning.begin(base, args[7])
    if state ~= 'completed' and state ~= 'failed' then fail('ARGUMENT', 'cannot clean state ' .. state) end
    local bound, left, before = string.match(args[3], '^(%-?%d+) (%d+) (%d+)$')
    if not bound then bound, left, before = digits(step.now - grace), integer('limit', args[6]), 0 end
    local cleaned = {}
    local ready = record_results(base, state, step)
    step.left = math.min(step.left, tonumber(left))
    local budget = step.left
    local over = ready and in_pieces(step, function(n)
      local ids = redis.call('ZRANGEBYSCORE', base .. ':' .. state, '-inf', bound, 'LIMIT', 0, n)
      if #ids == 0 then return 0 end
      local _, gone = take_members(base, state, ids, nil, step)
      for _, id in ipairs(gone) do cleaned[#cleaned + 1] = id end
      return #ids
    end)
    left = left - (budget - step.left)
    local total = before + #cleaned
    over = over or left <= 0
    if over and total > 0 then events.note(step.lines, 'cleaned', '', digits(total)) end
    wakeup.finish(base, step)
    return {over and '' or bound .. ' ' .. digits(left) .. ' ' .. digits(total), cleaned}
  end, {'allow-oom'})

  local UNSTARTED = {
    waiting = {{walk_zset, 'returned'}, {sift_fifo, 'fifo'}, {walk_zset, 'lifo'}},
    prioritized = {{walk_zset, 'prioritized'}}, ['key-waiting'] = {{walk_zset, 'keyed'}},
    delayed = {{walk_zset, 'scheduled'}}, ['waiting-children'] = {{walk_zset, 'parents'}},
    suspended = {{walk_zset, 'suspended'}},
  }

  request.register('cleanUnstarted', function(base, args)
    local walks, grace, step = UNSTARTED[args[4]], integer('grace', args[5]), cleaning.begin(base, args[7])
    if not walks then fail('ARGUMENT', 'cannot clean state ' .. args[4]) end
    local at, bound, left, before, position = string.match(args[3], '^(%d+) (%-?%d+) (%d+) (%d+) (.*)$')
    if not at then at, bound, left, before, position = 1, step.now - grace, integer('limit', args[6]), 0, '' end
    bound, left, step.cleaned = tonumber(bound), tonumber(left), {}
    step.most = left
    local number, rest = cleaning.walk_all(base, walks, tonumber(at), position, bound, step)
    left = left - step.removed
    local total, over = before + step.removed, not number or left <= 0
    if over and total > 0 then events.note(step.lines, 'cleaned', '', digits(total)) end
    wakeup.finish(base, step)
    if over then return {'', step.cleaned} end
    return {number .. ' ' .. digits(bound) .. ' ' .. digits(left) .. ' ' .. digits(total) .. ' ' .. rest, step.cleaned}
  end, {'allow-oom'})

  request.register('promoteJobs', function(base, args)
    local key, step, promoted = base .. ':scheduled', cleaning.begin(base, args[5]), 0
    local bound, left, position = string.match(args[3], '^(%d+) (%d+) (.*)$')
    if not bound then
      -- Jobs that are delayed later have a higher number.
      local limit, there = integer('limit', args[4]), redis.call('ZCARD', key)
      bound, left, position = order.next(base, step), limit < 0 and there or math.min(limit, there), ''
    end
    left = tonumber(left)
    local skip = passed_at(key, position, false)
    local over = in_pieces(step, function(wanted)
      local n = math.min(wanted, left - promoted)
      if n == 0 then return 0 end
      local members = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. digits(successors.NEVER), 'LIMIT', skip, n)
      local gone = {}
      for _, member in ipairs(members) do
        if string.sub(member, 1, 16) > bound then
          skip = skip + 1
        else
          gone[#gone + 1] = member
          if scheduled.start(base, member, step, 'promoted') then promoted = promoted + 1 end
        end
      end
      in_chunks('ZREM', key, nil, gone)
      keyed.review(base, step)
      return #members == n and wanted or #members
    end)
    wakeup.finish(base, step)
    left = left - promoted
    local more = not over and left > 0
    return {more and bound .. ' ' .. digits(left) .. ' ' .. position_at(key, skip, false) or '', promoted}
  end)

  request.register('retryJobs', function(base, args)
    local state, step, retried = args[4], cleaning.begin(base, args[6]), 0
    if state ~= 'completed' and state ~= 'failed' then fail('ARGUMENT', 'cannot retry state ' .. state) end
    local key = base .. ':' .. state
    local bound, left, position = string.match(args[3], '^(%d+) (%d+) (.*)$')
    if not bound then
      -- The count keeps a job that ends again within the same millisecond from starting for ever.
      local limit, there = integer('limit', args[5]), redis.call('ZCARD', key)
      if state == 'completed' then there = there + results.count(base, step.seen) end
      bound, left, position = step.now, limit < 0 and there or math.min(limit, there), ''
    end
    bound, left = tonumber(bound), tonumber(left)
    local ready = record_results(base, state, step)
    local passed = passed_at(key, position, true)
    local over = ready and in_pieces(step, function(wanted)
      local n = math.min(wanted, left - retried)
      if n == 0 then return 0 end
      local ids = redis.call('ZREVRANGE', key, digits(passed), digits(passed + n - 1))
      for _, id in ipairs(ids) do
        if step.seen.compact then compact.open(base, id) end
        local ended = redis.call('HGET', base .. ':job:' .. id, 'ended')
        if record.location(base, id) ~= state then
          redis.call('ZREM', key, id)    -- its record is elsewhere or missing
        elseif ended and tonumber(ended) > bound then
          passed = passed + 1            -- it ended again since
        elseif not finish.remove_over(base, id) then
          removal.start_anew(base, id, 'retried', step)
          retried = retried + 1
        end
      end
      keyed.review(base, step)
      return #ids == n and wanted or #ids
    end)
    wakeup.finish(base, step)
    left = left - retried
    local more = not over and left > 0
    return {more and digits(bound) .. ' ' .. digits(left) .. ' ' .. position_at(key, passed, true) or '', retried}
  end)
end
