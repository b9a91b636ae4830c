-- watching: reads the state of jobs for their watchers, and the replies for which the senders of signals wait.
--   readUpdates  { id lines }* -> { { state is_open name progress trimmed total { line }* } }*
--     lines: the number of log lines that the watcher knows; trimmed: the number of lines that are not kept any more;
--     total: the number of lines that the job has ever had. The reply has the kept lines after the known ones, as many
--     as the budget permits. is_open: 1 if the job has an open stream, see chunks.lua.
--     If the items are large, the reply has fewer items than the call, but at least one.
--     state: "" if no job has this id; "removed" if it was removed while it was watched. A job whose record has been
--     removed by retention has the state in which it ended, for as long as its stream is kept.
--   readReplies  { id identity }* -> { { state is_open step } }*
--     step: the step with this identity in the journal of the job, '' without one. state and is_open as in readUpdates;
--     the reply may have fewer items than the call, too.

local LINES_AT_ONCE, MOST_LINES = 20, 200

-- Return the next lines, and the number of all lines.
local function read_lines(base, id, known, trimmed, call_budget)
  local key, found = base .. ':logs:' .. id, {}
  local count = redis.call('LLEN', key)
  local from = math.max(0, known - trimmed)
  while from < count and #found < MOST_LINES and not (found[1] and budget.is_spent(call_budget)) do
    for _, line in ipairs(redis.call('LRANGE', key, digits(from), digits(from + LINES_AT_ONCE - 1))) do
      found[#found + 1] = record.line_of(line)
      call_budget.bytes = call_budget.bytes + #line
    end
    from = from + LINES_AT_ONCE
  end
  return found, trimmed + count
end

-- Return the state in which the stream of a job without a record has ended, "" without one.
local function ended_as(base, id)
  local last = redis.call('XREVRANGE', base .. ':chunks:' .. id, '+', '-', 'COUNT', 1)[1]
  return last and chunks.end_of(last[2]) or ''
end

local function read_update(base, id, known, call_budget)
  local state = reading.state_of(base, id)
  if not state then return {ended_as(base, id), 0, '', '', 0, known, {}} end
  local fields = redis.call('HMGET', base .. ':job:' .. id, 'name', 'progress', 'trimmed')
  if not fields[1] then fields[1] = plain.name_of(base, id) end
  local trimmed, is_open = tonumber(fields[3] or 0), redis.call('HEXISTS', base .. ':streamed', id)
  local lines, total = read_lines(base, id, known, trimmed, call_budget)
  call_budget.bytes = call_budget.bytes + #(fields[2] or '')
  return {state, is_open, fields[1] or '', fields[2] or '', trimmed, total, lines}
end

register('readUpdates', function(base, args)
  local call_budget, answer = budget.of_answer(), {}
  for i = 2, #args, 2 do integer('lines', args[i]) end
  for i = 1, #args - 1, 2 do
    if i > 1 and budget.is_spent(call_budget) then break end
    answer[#answer + 1] = read_update(base, args[i], tonumber(args[i + 1]), call_budget)
  end
  return answer
end, {'no-writes'})

register('readReplies', function(base, args)
  local call_budget, answer = budget.of_answer(), {}
  for i = 1, #args - 1, 2 do
    if i > 1 and budget.is_spent(call_budget) then break end
    local id = args[i]
    local step = redis.call('HGET', base .. ':steps:' .. id, args[i + 1]) or ''
    call_budget.bytes = call_budget.bytes + #step
    local state = reading.state_of(base, id) or ended_as(base, id)
    answer[#answer + 1] = {state, redis.call('HEXISTS', base .. ':streamed', id), step}
  end
  return answer
end, {'no-writes'})
