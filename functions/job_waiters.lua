-- job_waiters: notifies clients when a job ends.
--   awaitJob   id reply_channel -> { "waiting" | "missing" } | { state, flat { "result" | "error", "reason" } }
--   awaitJobs  reply_channel { id }* -> { "waiting" | "missing" | state, result or error, reason }…
--                                        as awaitJob, for many jobs; fewer replies than ids when the budget was spent
--   forgetReply id reply_channel -> "ok"
--   forgetReplies reply_channel { id }* -> number of ids considered, fewer than given when the budget was spent
--   confirmReplies reply_channel { id }* -> "ok"    the client has received the ends of these jobs: their records are
--                                                   no longer held for it, and the retention of the queue applies again
-- A repeated call has no second effect, so these calls carry no request number. At most 1,000 ids.

local TRIM_STEP = 200
local FINAL = {completed = true, failed = true}
local WAITING = {'waiting', '', ''}
local KEPT = {held = true, results = true, compact = true}

-- Return the first and the last position of a channel in a list, nil if it is not in the list. The list may have
-- thousands of channels, so one search over the text is faster than splitting it.
local function find(channels, channel)
  return string.find(' ' .. channels .. ' ', ' ' .. channel .. ' ', 1, true)
end

-- Note that a channel waits for a job that has not ended. seen: see queue_flags.create.
local function note_channel(base, id, channel, seen)
  local channels = redis.call('HGET', base .. ':waiters', id)
  if channels and find(channels, channel) then return end
  local key = queue_flags.create(base, 'waiters', seen)
  redis.call('HSET', key, id, channels and channels .. ' ' .. channel or channel)
end

local function check_count(args)
  if #args > 1001 then fail('ARGUMENT', 'at most 1000 ids a call, found ' .. #args - 1) end
end

do
  -- Return the reply for a job that has ended or does not exist. result: of a completed job without a record.
  local function end_of(base, id, state, result)
    if not state then return {'missing', '', ''} end
    if result then return {state, result, ''} end
    local found = redis.call('HMGET', base .. ':job:' .. id, state == 'completed' and 'result' or 'error', 'reason')
    return {state, found[1] or '', found[2] or ''}
  end

  register('awaitJob', function(base, args)
    local id = args[1]
    local state, result = record.location(base, id), nil
    if not state then
      state, result = plain.outcome(base, id)
    elseif FINAL[state] and finish.is_over(base, id) then
      state = nil
    end
    if not state then return {'missing'} end
    if not FINAL[state] then
      queue_flags.require(base)
      note_channel(base, id, args[2])
      return {'waiting'}
    end
    local ended = end_of(base, id, state, result)
    return {state, {state == 'completed' and 'result' or 'error', ended[2], 'reason', ended[3]}}
  end, {'allow-oom'})

  -- Register a channel for one job. Return the reply.
  local function await(base, id, channel, seen)
    local state, _, detail = record.location(base, id), nil, nil
    if state and FINAL[state] then
      if seen.held and finish.is_over(base, id) then state = nil end
      return end_of(base, id, state)
    end
    if not state then
      state, detail = plain.outcome(base, id)
      if not state or state == 'completed' then return end_of(base, id, state, detail) end
    end
    note_channel(base, id, channel, seen)
    return WAITING
  end

  register('awaitJobs', function(base, args)
    check_count(args)
    local seen, call_budget, replies = queue_flags.at(base), budget.of_answer(), {}
    for i = 2, #args do
      if i > 2 and budget.is_spent(call_budget) then break end
      local reply = await(base, args[i], args[1], seen)
      replies[i - 1], call_budget.bytes = reply, call_budget.bytes + #reply[2]
    end
    return replies
  end, {'allow-oom'})
end

local function forget(base, id, channel)
  if redis.call('ZSCORE', base .. ':held', id) then
    finish.confirm(base, channel, {id})    -- the job has ended
    return
  end
  local channels = redis.call('HGET', base .. ':waiters', id)
  local from, last = find(channels or '', channel)
  if not from then return end
  if channels == channel then
    redis.call('HDEL', base .. ':waiters', id)
  else
    -- Remove the blank before the channel as well, or the one after it if the channel is the first.
    local rest = string.sub(channels, 1, math.max(0, from - 2)) .. string.sub(channels, from == 1 and last or last - 1)
    redis.call('HSET', base .. ':waiters', id, rest)
  end
end

register('forgetReply', function(base, args)
  forget(base, args[1], args[2])
  return 'ok'
end, {'allow-oom'})

register('forgetReplies', function(base, args)
  check_count(args)
  local call_budget = budget.new()
  for i = 2, #args do
    if i > 2 and budget.is_spent(call_budget) then return i - 2 end
    forget(base, args[i], args[1])
  end
  return #args - 1
end, {'allow-oom'})

register('confirmReplies', function(base, args)
  check_count(args)
  if #args > 1 and finish.confirm(base, args[1], {unpack(args, 2)}) > 0 then
    -- A client that waits for one job after another confirms each by itself, so this reads only the flags it needs.
    local meta = redis.call('HMGET', base .. ':meta2', 'keep_completed', 'keep_failed', 'features', 'horizon')
    local seen = queue_flags.some(base, meta[3], KEPT)
    seen.keep, seen.horizon = {completed = meta[1] or '', failed = meta[2] or ''}, tonumber(meta[4] or nil)
    finish.trim_all(base, clock.now(), seen, #args + TRIM_STEP)
  end
  return 'ok'
end, {'allow-oom'})
