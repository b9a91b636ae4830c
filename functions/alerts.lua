-- alerts: the rules of alerts, their episodes, and the lease of the process that evaluates the rules. The base key is
-- the one of the queue `system/alerts`. Its jobs are the notifications about episodes.
--   putAlert      channel number name rule -> 1 | 0      Store a rule of at most 8 KiB. 0: 200 other rules exist.
--   removeAlert   channel number name -> 1 | 0
--     Remove a rule, and end its open episodes without notifications. 0: the rule does not exist.
--   listAlerts    -> { evaluator, last evaluation ms | '', flat { name rule } }
--   beginAlerts   evaluator lease_ms -> { fence, flat { name rule }, flat { name LF target, state } }
--     Take or renew the lease of the evaluator. lease_ms 0: return the lease. fence 0: another evaluator has the
--     lease, or no rule is stored.
--   noteAlerts    channel number fence name hold_ms webhooks opts { target is_true episode document }…
--                 -> { status }…
--     Report the condition of one rule for at most 20 targets.
--     hold_ms   `<to open> <to close>`: an episode opens when the condition was true for the first duration, and closes
--               when it was false for the second one
--     webhooks  their number. The call that opens or closes an episode adds one job for each of them, with the id
--               `<episode>:<opened or closed>:<number>`
--     status    "opened", "closed", or "" if the episode has not changed. All are "stale" if another process has the
--               lease, or if the rule was removed: then the call writes nothing.
--   noteNotification  channel number episode field text -> 1 | 0
--     Store the result of a notification in its episode. field: `<opened or closed>:<number>`. 0: no such episode.
--   readEpisodes  which count -> { id flat }…     Return at most 100 episodes. which: 'open', or 'all' for the newest
--   getEpisode    id -> flat | {}
--   store:
--     alerts         hash  name -> msgpack of a rule; at most 200
--     alert_states   hash  `<rule> LF <target>` -> `pending <since ms>`, `open <since ms> <episode>`,
--                    `clearing <since ms> <episode>`; at most 500. LF is a line feed, which no name contains
--     alert_lease    hash  evaluator, fence, ends, evaluated
--     alert_episode:<id>  hash  rule, target, document, opened, closed, ended_by, `n:<opened or closed>:<number>`;
--                    expires 90 days after it has closed
--     alert_episodes zset  id -> opened; the newest 1,000

do
  local MOST_RULES, MOST_BYTES, MOST_STATES, MOST_NOTED, MOST_READ = 200, 8192, 500, 20, 100
  local MOST_LISTED, KEPT_MS = 1000, '7776000000'    -- 90 days

  request.register('putAlert', function(base, args)
    local key, name, packed = base .. ':alerts', args[3], args[4]
    if #name + #packed > MOST_BYTES then fail('ARGUMENT', 'a rule has at most ' .. MOST_BYTES .. ' bytes') end
    if redis.call('HEXISTS', key, name) == 0 and redis.call('HLEN', key) >= MOST_RULES then return 0 end
    redis.call('HSET', key, name, packed)
    return 1
  end)

  local function close(base, id, ended_by, now)
    redis.call('HSET', base .. ':alert_episode:' .. id, 'closed', digits(now), 'ended_by', ended_by)
    redis.call('PEXPIRE', base .. ':alert_episode:' .. id, KEPT_MS)
  end

  request.register('removeAlert', function(base, args)
    local name, key, now = args[3], base .. ':alert_states', clock.now()
    local flat, mine = redis.call('HGETALL', key), {}
    for i = 1, #flat, 2 do
      if string.sub(flat[i], 1, #name + 1) == name .. '\n' then
        mine[#mine + 1] = flat[i]
        local episode = string.match(flat[i + 1], '^%l+ %d+ (.+)$')
        if episode then close(base, episode, 'the rule was removed', now) end
      end
    end
    if mine[1] then redis.call('HDEL', key, unpack(mine)) end
    return redis.call('HDEL', base .. ':alerts', name)
  end, {'allow-oom'})

  register('listAlerts', function(base)
    local lease = redis.call('HMGET', base .. ':alert_lease', 'evaluator', 'evaluated')
    return {lease[1] or '', lease[2] or '', redis.call('HGETALL', base .. ':alerts')}
  end, {'no-writes'})

  register('beginAlerts', function(base, args)
    local key, evaluator, length, now = base .. ':alert_lease', args[1], integer('lease', args[2]), clock.now()
    local found = redis.call('HMGET', key, 'evaluator', 'fence', 'ends')
    local is_mine, ends = found[1] == evaluator, tonumber(found[3] or 0)
    if length == 0 then
      if is_mine then redis.call('HSET', key, 'ends', '0') end
      return {0, {}, {}}
    end
    local is_held = ends > now and not clock.is_ahead(ends - length, now)
    if not is_mine and is_held or redis.call('EXISTS', base .. ':alerts') == 0 then return {0, {}, {}} end
    local fence = tonumber(found[2] or 0) + (is_mine and is_held and 0 or 1)
    redis.call('HSET', key, 'evaluator', evaluator, 'fence', digits(fence), 'ends', digits(now + length),
      'evaluated', digits(now))
    return {fence, redis.call('HGETALL', base .. ':alerts'), redis.call('HGETALL', base .. ':alert_states')}
  end, {'allow-oom'})

  -- Add a job for each webhook, about an episode that has opened or closed.
  local function notify(base, id, what, webhooks, opts, call)
    for number = 1, webhooks do
      local job = {id = id .. ':' .. what .. ':' .. digits(number), name = 'notification', data = '\192', opts = opts}
      add.one(base, job, call)
    end
  end

  local function open(base, rule, target, id, document, now)
    local list = base .. ':alert_episodes'
    redis.call('HSET', base .. ':alert_episode:' .. id, 'rule', rule, 'target', target, 'document', document,
      'opened', digits(now))
    redis.call('ZADD', list, digits(now), id)
    redis.call('ZREMRANGEBYRANK', list, 0, -MOST_LISTED - 1)
  end

  -- Return the next state of a target (nil: none), and "opened" or "closed" if its episode changes. held: the present
  -- state, its start, and its episode.
  local function next_state(held, is_true, holds, now)
    local state, since, episode = held.state, held.since, held.episode
    if clock.is_ahead(since, now) then since = now end
    if is_true then
      if state == 'open' then return held end
      if episode then return {state = 'open', since = now, episode = episode} end
      if now - since >= holds.open then return {state = 'open', since = now}, 'opened' end
      return {state = 'pending', since = since}
    end
    if not episode then return nil end
    if state == 'open' then state, since = 'clearing', now end
    if now - since >= holds.close then return nil, 'closed' end
    return {state = state, since = since, episode = episode}
  end

  local function parse(stored, now)
    local state, since, episode = string.match(stored or '', '^(%l+) (%d+) ?(.*)$')
    if not state then return {state = 'none', since = now} end
    return {state = state, since = tonumber(since), episode = episode ~= '' and episode or nil}
  end

  -- Note one observation: { rule, target, is_true, episode, document }. Return the status.
  local function note(base, seen, holds, webhooks, opts, call)
    local key, field = base .. ':alert_states', seen.rule .. '\n' .. seen.target
    local stored = redis.call('HGET', key, field)
    if not stored and (not seen.is_true or redis.call('HLEN', key) >= MOST_STATES) then return '' end
    local held = parse(stored, call.now)
    local following, change = next_state(held, seen.is_true, holds, call.now)
    local id = held.episode or seen.episode
    if following then
      local text = following.state .. ' ' .. digits(following.since)
      if following.state ~= 'pending' then text = text .. ' ' .. id end
      if text ~= stored then redis.call('HSET', key, field, text) end
    else
      redis.call('HDEL', key, field)
    end
    if change == 'opened' then open(base, seen.rule, seen.target, id, seen.document, call.now) end
    if change == 'closed' then close(base, id, 'the condition has ended', call.now) end
    if change then notify(base, id, change, webhooks, opts, call) end
    return change or ''
  end

  request.register('noteAlerts', function(base, args)
    local rule, replies, count = args[4], {}, (#args - 7) / 4
    local to_open, to_close = string.match(args[5], '^(%d+) (%d+)$')
    local holds = {open = integer('hold', to_open), close = integer('hold', to_close)}
    local webhooks = integer('webhooks', args[6])
    if count > MOST_NOTED then fail('ARGUMENT', 'at most ' .. MOST_NOTED .. ' targets in a call') end
    local is_current = redis.call('HGET', base .. ':alert_lease', 'fence') == args[3]
      and redis.call('HEXISTS', base .. ':alerts', rule) == 1
    local call = is_current and queue_flags.call(base)
    for i = 1, count do
      local at = 4 + 4 * i
      replies[i] = not is_current and 'stale' or note(base, {rule = rule, target = args[at],
        is_true = args[at + 1] == '1', episode = args[at + 2], document = args[at + 3]}, holds, webhooks, args[7], call)
    end
    if call then wakeup.finish(base, call) end
    return replies
  end, {'allow-oom'})

  request.register('noteNotification', function(base, args)
    local key = base .. ':alert_episode:' .. args[3]
    if redis.call('EXISTS', key) == 0 then return 0 end
    redis.call('HSET', key, 'n:' .. args[4], string.sub(args[5], 1, 500))
    return 1
  end, {'allow-oom'})

  local function open_ids(base)
    local flat, ids = redis.call('HGETALL', base .. ':alert_states'), {}
    for i = 2, #flat, 2 do ids[#ids + 1] = string.match(flat[i], '^%l+ %d+ (.+)$') end
    return ids
  end

  register('readEpisodes', function(base, args)
    local most = math.min(integer('count', args[2]), MOST_READ)
    local ids = args[1] == 'open' and open_ids(base)
      or redis.call('ZREVRANGE', base .. ':alert_episodes', 0, most - 1)
    local rows = {}
    for i = 1, math.min(#ids, most) do
      local flat = redis.call('HGETALL', base .. ':alert_episode:' .. ids[i])
      if flat[1] then rows[#rows + 1] = {ids[i], flat} end
    end
    return rows
  end, {'no-writes'})

  register('getEpisode', function(base, args)
    return redis.call('HGETALL', base .. ':alert_episode:' .. args[1])
  end, {'no-writes'})
end
