-- metrics: for each minute of the last day, the number of jobs that ended, and the total duration of their runs.
-- Revoked jobs do not count.
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

  local last_base, last_state, last_minute, last_key, last_n, last_ms = nil, nil, nil, nil, nil, nil

  -- Set last_key, last_n and last_ms, the store key and the fields of a minute. Most calls find them set, because the
  -- call before had the same minute.
  local function look(base, state, minute)
    if minute == last_minute and state == last_state and base == last_base then return end
    last_base, last_state, last_minute = base, state, minute
    local prefix = digits(minute % 60)
    last_key, last_n, last_ms = key_of(base, state, math.floor(minute / 60)), prefix .. ':n', prefix .. ':ms'
  end

  -- Count n jobs that ended now; run_ms: the total duration of their last runs, 0 for jobs that did not run. Return how
  -- many jobs of this state have ended in this minute.
  function metrics.count(base, state, n, run_ms, now)
    local minute = (now - now % MINUTE_MS) / MINUTE_MS
    look(base, state, minute)
    local total = redis.call('HINCRBY', last_key, last_n, digits(n))
    if total == n then redis.call('PEXPIRE', last_key, KEEP_MS) end
    if run_ms > 0 then redis.call('HINCRBY', last_key, last_ms, digits(run_ms)) end
    return total
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

  -- Return the field and the number of each minute of an hour from `first` to `last`.
  local function fields_of(hour, first, last)
    local fields, minutes = {}, {}
    for minute = math.max(first, hour * 60), math.min(last, hour * 60 + 59) do
      fields[#fields + 1], minutes[#minutes + 1] = digits(minute % 60) .. ':n', minute
    end
    return fields, minutes
  end

  local function read_hour(base, state, hour, fields, minutes, rows)
    local key = key_of(base, state, hour)
    if not exists(key) then return end
    for i, n in ipairs(redis.call('HMGET', key, unpack(fields))) do
      if n then rows[#rows + 1] = {minutes[i], tonumber(n)} end
    end
  end

  -- Return { minute since 1970, n }… of the completed jobs and of the failed ones, for each of the last 60 minutes in
  -- which jobs ended. A queue in which none did costs one command.
  function metrics.last_hour(base, now)
    local last, completed, failed = math.floor(now / MINUTE_MS), {}, {}
    local first = last - 59
    local h, hour = math.floor(first / 60), math.floor(last / 60)
    if redis.call('EXISTS', key_of(base, 'completed', h), key_of(base, 'failed', h), key_of(base, 'completed', hour),
      key_of(base, 'failed', hour)) == 0 then return completed, failed end
    for each = h, hour do
      local fields, minutes = fields_of(each, first, last)
      read_hour(base, 'completed', each, fields, minutes, completed)
      read_hour(base, 'failed', each, fields, minutes, failed)
    end
    return completed, failed
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
