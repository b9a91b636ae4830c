-- summary: the figures of a queue for an overview, in one read.
-- A queue of layout 1 is refused with MIGRATE, because its structures would look empty.
--   summarize  workers -> { now, counts, paused, oldest, limits, completed, failed, workers, alive, schedules,
--                          dead_letter | '' }
--     counts     flat { state, count }, as countJobs
--     paused     1 | 0
--     oldest     when the oldest one of the next jobs of each structure was added, ms; '' if no job waits
--     limits     { concurrency | '', rate_max | '', rate_ms | '', gate | '', max_waiting | '' }
--     completed, failed   { minute since 1970, n }…   the last 60 minutes in which jobs ended in this state
--     workers    info…    of up to `workers` workers (at most 200) that gave a sign of life in the last minute
--     alive      the number of these workers
--     schedules  { number, the earliest fire time | '' }

do
  local SILENT_MS, MINUTES, MOST_WORKERS, LOOKED_AT = 60000, 60, 200, 20

  local function earlier(a, b)
    if not a or (b and b < a) then return b end
    return a
  end

  local function added_of(base, id)
    local found = redis.call('HMGET', base .. ':job:' .. id, 'added', 'route', 'place')
    if found[1] then return tonumber(found[1]) end
    local of_key = found[2] and keyed.added_of(found[2])
    if of_key then return tonumber(of_key) end
    if not found[3] then return (select(2, compact.name_of(base, id))) end
    return tonumber(string.match(found[3], '%-(%d+)$') or nil)
  end

  local function next_in_fifo(base, group)
    local rows = redis.call('XRANGE', base .. ':fifo', '(' .. (group['last-delivered-id'] or '0-0'), '+', 'COUNT', '1')
    return rows[1] and tonumber(string.match(rows[1][1], '%d+$'))
  end

  local function oldest_of(base, name)
    local oldest
    for _, member in ipairs(redis.call('ZRANGE', base .. ':' .. name, 0, LOOKED_AT - 1)) do
      oldest = earlier(oldest, added_of(base, locations.id_of(name, member)))
    end
    return oldest
  end

  local function oldest_ready(base, seen, group)
    local oldest = earlier(next_in_fifo(base, group), seen.returned and oldest_of(base, 'returned'))
    oldest = earlier(oldest, seen.prioritized and oldest_of(base, 'prioritized'))
    oldest = earlier(oldest, seen.lifo and oldest_of(base, 'lifo'))
    return earlier(oldest, oldest_of(base, 'keyed'))
  end

  local function limits_of(base, seen)
    local limits = seen.limits and redis.call('HMGET', base .. ':limits', 'concurrency', 'rate_max', 'rate_ms', 'gate',
      'max_waiting') or {}
    for i = 1, 5 do limits[i] = limits[i] or '' end
    return limits
  end

  local function schedules_of(base)
    local first = redis.call('ZRANGE', base .. ':schedules', '0', '0', 'WITHSCORES')
    if not first[1] then return {0, ''} end
    local fire = tonumber(first[2])
    return {redis.call('ZCARD', base .. ':schedules'), fire < 1e15 and fire or ''}
  end

  local function infos_of(base, now, most)
    local alive, since = base .. ':alive', digits(now - SILENT_MS)
    local names = redis.call('ZRANGEBYSCORE', alive, since, '+inf', 'LIMIT', 0, most)
    if not names[1] then return {}, 0 end
    local infos = redis.call('HMGET', base .. ':workers', unpack(names))
    for i = 1, #names do infos[i] = infos[i] or '' end
    return infos, #names < most and #names or redis.call('ZCOUNT', alive, since, '+inf')
  end

  register('summarize', function(base, args)
    local meta = redis.call('HMGET', base .. ':meta2', 'layout', 'dead_letter', 'features', 'paused')
    if not meta[1] and layout.find(base) == 'old' then layout.require_migration(base) end
    local most, now = math.min(math.max(integer('workers', args[1]), 1), MOST_WORKERS), clock.now()
    local seen, group = queue_flags.existing(base, meta[3]), entries.group_of(base .. ':fifo')
    local infos, alive = infos_of(base, now, most)
    local completed, failed = metrics.last_hour(base, now)
    return {
      now, reading.counts(base, seen, group), queue_flags.is_paused(meta[4], now) and 1 or 0,
      oldest_ready(base, seen, group) or '', limits_of(base, seen), completed, failed, infos, alive,
      schedules_of(base), meta[2] or '',
    }
  end, {'no-writes'})
end
