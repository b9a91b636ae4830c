-- metrics: for each minute of the last day, the number of jobs that ended, and the total duration of their runs.
--   metrics:<state>:<hour>  hash  "<minute>:n" number of jobs that ended, "<minute>:ms" total duration of their runs;
--                           state: completed or failed; hour: since 1970; minute: 0 to 59. It expires after 25 hours.
--   getMetrics  state from to -> { minute since 1970, n, ms }…   from and to in ms, both minutes included; '' = the
--               last 24 hours; only minutes in which a job ended

local metrics = {}

do
  local MINUTE_MS, DAY_MS, KEEP_MS = 60000, 86400000, '90000000'

  local function key_of(base, state, hour)
    return base .. ':metrics:' .. state .. ':' .. digits(hour)
  end

  -- Count n jobs that ended now; run_ms: the total duration of their last runs, 0 for jobs that did not run.
  function metrics.count(base, state, n, run_ms, now)
    local minute = math.floor(now / MINUTE_MS)
    local key, field = key_of(base, state, math.floor(minute / 60)), digits(minute % 60)
    if redis.call('HINCRBY', key, field .. ':n', digits(n)) == n then redis.call('PEXPIRE', key, KEEP_MS) end
    if run_ms > 0 then redis.call('HINCRBY', key, field .. ':ms', digits(run_ms)) end
  end

  local function minutes_of(base, state, hour, first, last, rows)
    local flat, counts = redis.call('HGETALL', key_of(base, state, hour)), {}
    if #flat == 0 then return end
    for i = 1, #flat, 2 do counts[flat[i]] = tonumber(flat[i + 1]) end
    for minute = math.max(first, hour * 60), math.min(last, hour * 60 + 59) do
      local field = digits(minute % 60)
      if counts[field .. ':n'] then
        rows[#rows + 1] = {minute, counts[field .. ':n'], counts[field .. ':ms'] or 0}
      end
    end
  end

  -- Return the number of jobs that ended in the last minutes.
  function metrics.ended_since(base, minutes, now)
    local last, total = math.floor(now / MINUTE_MS), 0
    for minute = last - minutes + 1, last do
      for _, state in ipairs({'completed', 'failed'}) do
        local key = key_of(base, state, math.floor(minute / 60))
        total = total + tonumber(redis.call('HGET', key, digits(minute % 60) .. ':n') or 0)
      end
    end
    return total
  end

  -- Return { minute since 1970, n }… for each of the last minutes (at most 60) in which jobs ended in a state.
  function metrics.last_minutes(base, state, minutes, now)
    local last, rows = math.floor(now / MINUTE_MS), {}
    local first = last - minutes + 1
    for hour = math.floor(first / 60), math.floor(last / 60) do
      local fields, numbers = {}, {}
      for minute = math.max(first, hour * 60), math.min(last, hour * 60 + 59) do
        fields[#fields + 1], numbers[#numbers + 1] = digits(minute % 60) .. ':n', minute
      end
      local key = key_of(base, state, hour)
      local found = exists(key) and redis.call('HMGET', key, unpack(fields)) or {}
      for i, n in ipairs(found) do
        if n then rows[#rows + 1] = {numbers[i], tonumber(n)} end
      end
    end
    return rows
  end

  register('getMetrics', function(base, args)
    local state, now, rows = args[1], clock.now(), {}
    if state ~= 'completed' and state ~= 'failed' then fail('ARGUMENT', 'no metrics of state ' .. state) end
    local to = math.min(now, args[3] == '' and now or integer('to', args[3]))
    local from = math.max(now - DAY_MS, args[2] == '' and 0 or integer('from', args[2]))
    local first, last = math.floor(from / MINUTE_MS), math.floor(to / MINUTE_MS)
    for hour = math.floor(first / 60), math.floor(last / 60) do
      minutes_of(base, state, hour, first, last, rows)
    end
    return rows
  end, {'no-writes'})
end
