-- finish: final states, their retention, and the notification of clients that wait for a result.
--   completed, failed  zset  id -> finished ms; a job is in at most one of them
--   waiters  hash  id -> reply channels, joined by spaces; for an ended job, the channels without a receipt.
--            "<base>:reply:<name>" (sharded) gets "<state> <id length> <id><payload>", the payload only up to 64 KiB,
--            otherwise "<state>? …"
--   held     zset  id -> instant until which no retention policy may remove the job. A record with the field `drop` is
--            deleted at that instant
--   meta2  hash  keep_completed, keep_failed: the policy that was last applied to the set; with HELD in front, an
--                operator holds it, see retention.lua
-- Text of a retention policy: "<count> <age ms>", -1 = without limit, count 0 = keep nothing; '' = the default. The job
-- that ends applies its policy to the whole set. A suffix " t<ms>" (also after '') gives the job its own time to live:
-- its record is kept for exactly that time, and no policy is applied to it or by it.
-- Scores: a job with its own time to live has the instant of its removal as its score, which is later than now. All
-- other jobs have their time of ending. Policies look only at scores up to now, so they skip jobs with a time to live.
-- Once its instant has come, such a job counts as removed (finish.is_over), even if no sweep has removed it yet.

local finish = {}
local DEFAULT_POLICY = {completed = '1000 86400000', failed = '10000 2592000000'}
local HOLD_MS = 60000
local REPLIES_MAX = 1000
local PUBLISH_MAX = 65536
local MOST_TURNS = 100
local TRIM_STEP = 500            -- a call that ends n jobs removes at most n and this many older ones
finish.HELD = '='
-- XTRIM searches a node of the stream from its start. So a call that ends a few plain jobs leaves up to SLACK more jobs
-- than the policy keeps, if that is at least LAX jobs. Sweeps leave none.
finish.SLACK = 15
local LAX = 1000

local function policy_of(state, policy)
  local text = policy == '' and DEFAULT_POLICY[state] or policy
  local count, age = string.match(text, '^=?(%-?%d+) (%-?%d+)$')
  return tonumber(count), tonumber(age)
end

-- Check a policy argument before anything is written.
function finish.check_policy(policy)
  if policy == '' then return end
  local kept = string.gsub(policy, ' t%d+$', '')
  if kept ~= '' and not string.find(kept, '^%-?%d+ %-?%d+$') then
    fail('ARGUMENT', 'a retention policy is "<count> <age ms>[ t<ms>]", found ' .. policy)
  end
end

-- Check a policy that an operator holds; '' is none.
function finish.check_held(policy)
  if policy ~= '' and not string.find(policy, '^%-?%d+ %-?%d+$') then
    fail('ARGUMENT', 'a held retention policy is "<count> <age ms>", found ' .. policy)
  end
end

-- Return the policy that ended jobs with this one apply: the held one, if there is one.
local function policy_in_force(state, policy, seen)
  local kept = seen.keep[state]
  return string.sub(kept, 1, 1) == finish.HELD and kept or policy
end

do
  local last_base, last_channels, last_key

  -- Return the channel if this is one reply channel, and nil if it is several. A client that makes one request after
  -- the other has the same one.
  local function only_channel(base, channels)
    if channels == last_channels and base == last_base then return last_key end
    if string.find(channels, ' ', 1, true) then return nil end
    last_base, last_channels, last_key = base, channels, base .. ':reply:' .. channels
    return last_key
  end

  -- Publish the end of a job to the channels that wait for it.
  function finish.answer(base, channels, state, id, payload)
    local text
    if #payload > PUBLISH_MAX then
      text = state .. '? ' .. digits(#id) .. ' ' .. id
    else
      text = state .. ' ' .. digits(#id) .. ' ' .. id .. payload
    end
    -- These calls come after writes, so they must not raise. Clients that wait also read the record.
    local only = only_channel(base, channels)
    if only then
      redis.pcall('SPUBLISH', only, text)
      return
    end
    for channel in string.gmatch(channels, '%S+') do redis.pcall('SPUBLISH', base .. ':reply:' .. channel, text) end
  end
end

-- Publish the end of these jobs to the clients that wait for them. Return the ids of the jobs with such clients, as a
-- list and a set in one table. Return nil if no client waits in this queue.
function finish.answer_waiters(base, state, ids, payloads, seen)
  local key = base .. ':waiters'
  if not seen.waiters then return nil end
  local waited = {}
  for from = 1, #ids, CHUNK do
    local last = math.min(from + CHUNK - 1, #ids)
    for i, channels in ipairs(redis.call('HMGET', key, unpack(ids, from, last))) do
      if channels then
        local at = from + i - 1
        local id = ids[at]
        waited[#waited + 1] = id
        waited[id] = true
        finish.answer(base, channels, state, id, payloads[at])
      end
    end
  end
  return waited
end

-- Remove the oldest finished jobs, except those whose record is held for a client. Return how many of them are held.
local function remove_finished(base, state, ids, seen)
  if #ids == 0 then return 0 end
  local held, wanted = base .. ':held', #ids
  if seen.held then
    local free = {}
    for from = 1, #ids, CHUNK do
      local last = math.min(from + CHUNK - 1, #ids)
      for i, until_ms in ipairs(redis.call('ZMSCORE', held, unpack(ids, from, last))) do
        if not until_ms then free[#free + 1] = ids[from + i - 1] end
      end
    end
    ids = free
    if #ids > 0 then in_chunks('ZREM', base .. ':' .. state, nil, ids) end
  else
    redis.call('ZREMRANGEBYRANK', base .. ':' .. state, '0', digits(#ids - 1))
  end
  record.unlink(base, ids, seen)
  return wanted - #ids
end

-- Release held jobs, and delete the released records with the field `drop`. received: true if the clients have received
-- the replies. Records with a time to live then stay held. Return the number of released records.
local function release(base, ids, received)
  local ending, records, gone = {}, 0, {completed = {}, failed = {}}
  for _, id in ipairs(ids) do
    local found = redis.call('HMGET', base .. ':job:' .. id, 'drop', 'place')
    local drop, location = found[1], found[2]
    if not (received and drop == 't') then
      ending[#ending + 1] = id
      if location then records = records + 1 end
      local list = drop and location and gone[string.match(location, '^%S+')]
      if list then list[#list + 1] = id end
    end
  end
  in_chunks('ZREM', base .. ':held', nil, ending)
  in_chunks('HDEL', base .. ':waiters', nil, ids)
  for state, list in pairs(gone) do
    in_chunks('ZREM', base .. ':' .. state, nil, list)
    record.unlink(base, list)
  end
  return records
end

-- Release at most `limit` records that were held long enough. Return their number.
function finish.release_held(base, now, limit)
  local ids = redis.call('ZRANGEBYSCORE', base .. ':held', '-inf', digits(now), 'LIMIT', '0', digits(limit))
  if ids[1] then release(base, ids) end
  return #ids
end

local function put(key, ids, instant)
  if #ids == 1 then
    redis.call('ZADD', key, digits(instant), ids[1])
    return
  end
  local members, score, n = {}, digits(instant), 0
  for i = 1, #ids do
    members[n + 1], members[n + 2] = score, ids[i]
    n = n + 2
  end
  in_chunks('ZADD', key, nil, members)
end

-- Hold the record of a job as finish.await_receipts does, in a call that need not look at the others.
function finish.hold(base, id, call)
  redis.call('ZADD', queue_flags.create(base, 'held', call.seen), digits(call.now + HOLD_MS), id)
end

-- Hold the records of these jobs until each channel has confirmed the reply, or for a minute. A message that was
-- counted as received can still be lost with the receiver's connection, and the client then reads the record. If too
-- many records are held, the oldest ones are released, because disconnected clients must not fill the memory.
function finish.await_receipts(base, waited, now, seen)
  local widen = not seen.held or #waited >= MANY
  local key = queue_flags.create(base, 'held', seen)
  if widen then redis.call('ZADD', key, '0', WIDENER) end
  put(key, waited, now + HOLD_MS)
  if widen then redis.call('ZREM', key, WIDENER) end
  if redis.call('ZCARD', key) <= REPLIES_MAX then return end
  local from = digits(now)
  local over = redis.call('ZCOUNT', key, from, digits(now + HOLD_MS)) - REPLIES_MAX
  if over <= 0 then return end
  local most = digits(math.min(over, REPLIES_MAX))
  release(base, redis.call('ZRANGEBYSCORE', key, from, '+inf', 'LIMIT', '0', most), true)
end

-- Return a list of reply channels without one of them.
function finish.without(channels, channel)
  local rest = {}
  for name in string.gmatch(channels, '%S+') do
    if name ~= channel then rest[#rest + 1] = name end
  end
  return rest
end

-- Note that a channel has received the replies of these jobs, at most 1,000. Return the number of records that are no
-- longer held for any client.
function finish.confirm(base, channel, ids)
  local key, received = base .. ':waiters', {}
  local held, lists = redis.call('ZMSCORE', base .. ':held', unpack(ids)), redis.call('HMGET', key, unpack(ids))
  for i, id in ipairs(ids) do
    -- A job that is not held runs again, and its waiters wait for its next end.
    local rest = held[i] and lists[i] and finish.without(lists[i], channel)
    if rest and #rest > 0 then
      redis.call('HSET', key, id, table.concat(rest, ' '))
    elseif rest then
      received[#received + 1] = id
    end
  end
  return release(base, received, true)
end

-- Return true if an ended job counts as removed: its time to live is over, but no sweep has removed it yet.
function finish.is_over(base, id)
  local until_ms = redis.call('ZSCORE', base .. ':held', id)
  if not until_ms or tonumber(until_ms) > clock.now() then return false end
  return redis.call('HEXISTS', base .. ':job:' .. id, 'drop') == 1
end

-- Remove an ended job that counts as removed. Return true if it did.
function finish.remove_over(base, id)
  if not finish.is_over(base, id) then return false end
  redis.call('ZREM', base .. ':held', id)
  redis.call('HDEL', base .. ':waiters', id)
  redis.call('ZREM', base .. ':' .. record.location(base, id), id)
  record.unlink(base, {id})
  return true
end

-- Return the number of jobs of a set that policies apply to. A job whose time to live is over must not count.
local function ordinary(base, key, now)
  local last = digits(now)
  return redis.call('ZCOUNT', key, '-inf', last) - redis.call('ZCOUNT', base .. ':held', '-inf', last)
end

-- Remove up to `over` records of completed jobs and jobs in `results`, in the order in which they ended. A turn removes
-- the records that are older than the oldest job in `results`, and then the jobs there that are older than the oldest
-- record.
local function remove_merged(base, over, now, seen)
  local key, held = base .. ':completed', 0
  for _ = 1, MOST_TURNS do
    local number, oldest = results.first(base, seen)
    local older = oldest and redis.call('ZCOUNT', key, '-inf', '(' .. digits(oldest)) - held or over
    local n = math.min(over, older)
    if n > 0 then
      local ids = redis.call('ZRANGE', key, held, held + n - 1)
      held = held + remove_finished(base, 'completed', ids, seen)
    end
    over = over - n
    if over <= 0 or not oldest then return end
    local first = redis.call('ZRANGE', key, held, held, 'WITHSCORES')
    if not first[1] or tonumber(first[2]) > now then
      results.remove_oldest(base, over, seen)
      return
    end
    local gone = results.remove_before(base, tonumber(first[2]), over, seen, number, oldest)
    over = over - gone
    if over <= 0 or (gone == 0 and n == 0) then return end
  end
end

-- Remove the `over` oldest of the jobs that policies apply to. kept: how many of them are in `results`; ended: how many
-- have a record.
local function remove_oldest(base, state, over, kept, now, seen, ended)
  if kept == 0 then
    remove_finished(base, state, redis.call('ZRANGE', base .. ':' .. state, 0, over - 1), seen)
  elseif ended == 0 then
    results.remove_oldest(base, over, seen)
  else
    remove_merged(base, over, now, seen)
  end
end

-- Apply one policy to a whole set and remove at most `most` jobs. slack: how many more jobs than `count` may remain,
-- nil for none. Return the number of candidates.
local function trim(base, state, count, age, now, seen, most, slack)
  local key, met = base .. ':' .. state, 0
  local kept = state == 'completed' and results.count(base, seen) or 0
  if count >= 0 then
    local ended, enough = redis.call('ZCARD', key), slack or 0
    -- Most calls remove nothing. They need not know how many jobs have a time to live.
    if seen.held and ended + kept - count > enough then ended = ordinary(base, key, now) end
    local over = math.min(ended + kept - count, most)
    if over > enough then
      remove_oldest(base, state, over, kept, now, seen, ended)
      met = over
    end
  end
  if age >= 0 and met < most then
    local old = redis.call('ZRANGEBYSCORE', key, '-inf', now - age, 'LIMIT', 0, most - met)
    remove_finished(base, state, old, seen)
    met = met + #old
    if kept > 0 and met < most then met = met + results.remove_before(base, now - age, most - met, seen) end
  end
  results.keep_held(base, seen)
  return met
end

-- Remove at most `most` jobs that the policies which were last applied do not keep. Return the number of candidates.
function finish.trim_all(base, now, seen, most)
  local met = 0
  for _, state in ipairs({'completed', 'failed'}) do
    local count, age = policy_of(state, seen.keep[state])
    met = met + trim(base, state, count, age, now, seen, most - met)
  end
  return met
end

-- Store the policy that now applies to the set, if it is another one. Return the policy that applies.
local function adopt_policy(base, state, policy, seen)
  if seen.keep[state] == policy then return policy end
  policy = policy_in_force(state, policy, seen)
  if seen.keep[state] == policy then return policy end
  seen.keep[state] = policy
  redis.call('HSET', base .. ':meta2', 'keep_' .. state, policy)
  return policy
end

-- Apply the policy "keep nothing": keep only records that a client waits for, for as long as they are held.
local function keep_waited(base, ids, waited, seen)
  local kept, dropped = {}, {}
  for _, id in ipairs(ids) do
    local list = waited and waited[id] and kept or dropped
    list[#list + 1] = id
  end
  for _, id in ipairs(kept) do redis.call('HSET', base .. ':job:' .. id, 'drop', '1') end
  record.unlink(base, dropped, seen)
  return kept
end

-- Keep the records of ended jobs until an instant.
local function keep_until(base, state, ids, instant, seen)
  for _, id in ipairs(ids) do redis.call('HSET', base .. ':job:' .. id, 'drop', 't') end
  put(base .. ':' .. state, ids, instant)
  put(queue_flags.create(base, 'held', seen), ids, instant)
end

-- Give an ended job a time to live in ms from now on; nil: the policy of its set applies again.
function finish.change_ttl(base, id, state, now, ttl)
  local key = base .. ':job:' .. id
  if ttl then return keep_until(base, state, {id}, now + ttl) end
  local found = redis.call('HMGET', key, 'drop', 'ended')
  if found[1] ~= 't' then return end
  redis.call('ZREM', base .. ':held', id)
  redis.call('HDEL', base .. ':waiters', id)
  redis.call('HDEL', key, 'drop')
  put(base .. ':' .. state, {id}, found[2] or now)
end

-- Return how many older jobs a call that ends n jobs may remove, whatever their policies are.
function finish.most_removed(n)
  return n + TRIM_STEP
end

-- Return how many completed jobs a policy keeps (-1: all), for how long (ms, -1: for ever), and the time to live that
-- it gives a job, nil for none. If the policy keeps nothing, but an operator holds another one, the held one applies.
-- In all other cases the trimming after the call applies a held policy.
function finish.kept_by(policy, seen)
  local ttl = string.match(policy, ' t(%d+)$')
  if ttl then return 0, -1, ttl end
  local count, age = policy_of('completed', policy)
  if count == 0 then count, age = policy_of('completed', policy_in_force('completed', policy, seen)) end
  return count, age, nil
end

-- Apply the policy of n plain jobs that have just completed, and whose outcomes are stored. most_slack: how many more
-- jobs than the policy keeps may remain (default: SLACK), if it keeps at least LAX jobs.
function finish.trim_results(base, policy, n, call, most_slack)
  policy = adopt_policy(base, 'completed', policy, call.seen)
  local count, age = policy_of('completed', policy)
  -- Age alone can wait for the next sweep. The default policy does, which saves a command.
  local most = call.left or n + TRIM_STEP
  if most <= 0 then return end
  local slack = n <= finish.SLACK and count >= LAX and (most_slack or finish.SLACK) or nil
  call.left = most - trim(base, 'completed', count, policy ~= '' and age or -1, call.now, call.seen, most, slack)
end

-- Store the ended jobs of one state and policy, and apply the policy. left: how many older jobs this call may still
-- remove. Return the rest of that number.
local function store_group(base, group, now, seen, left)
  local state, ids = group.state, group.ids
  local waited = finish.answer_waiters(base, state, ids, group.payloads, seen)
  local ttl = string.match(group.policy, ' t(%d+)$')
  if ttl then
    keep_until(base, state, ids, now + ttl, seen)
    return left
  end
  local policy = policy_in_force(state, group.policy, seen)
  local count, age = policy_of(state, policy)
  if count == 0 then ids = keep_waited(base, ids, waited, seen) end
  if #ids > 0 then put(base .. ':' .. state, ids, now) end
  if waited and waited[1] then finish.await_receipts(base, waited, now, seen) end
  if count == 0 then return left end
  adopt_policy(base, state, policy, seen)
  -- Age alone can wait for the next sweep. The default policy does, which saves a command.
  if left == 0 then return 0 end
  return left - trim(base, state, count, policy ~= '' and age or -1, now, seen, left)
end

-- Return the collected jobs of a state and a policy: { state, policy, ids, payloads }.
function finish.group_of(done, state, policy)
  local groups = done[state]
  if not groups then
    groups = {}
    done[state] = groups
  end
  local group = groups[policy]
  if not group then
    group = {state = state, policy = policy, ids = {}, payloads = {}}
    groups[policy], done[#done + 1] = group, group
  end
  return group
end

-- Collect a job that has ended. Its location and the time of its end are already stored.
function finish.note(done, state, policy, id, payload)
  local group = finish.group_of(done, state, policy)
  local ids = group.ids
  local n = #ids + 1
  ids[n], group.payloads[n] = id, payload
end

-- Note that one of the collected failed jobs was revoked. Somebody wanted its end, so metrics do not count it as a
-- failure: a queue whose jobs are often revoked would seem to fail.
function finish.note_revoked(done)
  done.revoked = (done.revoked or 0) + 1
end

-- Collect completed jobs. payloads: by position, needed only if a client of the queue waits. The caller must not change
-- `ids` and `payloads` afterwards.
function finish.note_completed(done, policy, ids, payloads)
  local group = finish.group_of(done, 'completed', policy)
  local known, n = group.ids, #group.ids
  if n == 0 then
    group.ids, group.payloads = ids, payloads
    return
  end
  for i = 1, #ids do known[n + i], group.payloads[n + i] = ids[i], payloads[i] end
end

-- Release jobs that were held long enough, in a call that may have held n jobs. The function that adds to `held` also
-- clears it: sweeps alone might not keep up.
function finish.release_ended(base, n, call)
  finish.release_held(base, call.now, 10 + 2 * n)
end

-- Store the collected jobs in the order of their policies; the last policy is the one that remains. run_ms: the total
-- duration of the runs of each state, if there were any. done.plain: how many plain jobs completed as well.
-- done.revoked: see finish.note_revoked.
function finish.store(base, done, call, run_ms)
  local now, seen, counts, ended = call.now, call.seen, {}, 0
  for _, group in ipairs(done) do ended = ended + #group.ids end
  local added = ended + (done.waited or 0)
  if seen.held and added > 0 then finish.release_ended(base, added, call) end
  -- One limit for all groups, because every job may have its own policy.
  local left = call.left or ended + TRIM_STEP
  for _, group in ipairs(done) do
    record.forget_marks(base, group.ids, call)
    left = store_group(base, group, now, seen, left)
    counts[group.state] = (counts[group.state] or 0) + #group.ids
  end
  if done.plain then counts.completed = (counts.completed or 0) + done.plain end
  if done.revoked then
    counts.failed = counts.failed > done.revoked and counts.failed - done.revoked or nil
  end
  for state, n in pairs(counts) do metrics.count(base, state, n, run_ms and run_ms[state] or 0, now) end
end

-- Return the policy of a job that the server itself fails, in the form that its worker would send: the time to live
-- ("r") or the retention of failed jobs ("f") from its options, otherwise the default.
function finish.own_policy(base, id)
  local opts = redis.call('HGET', base .. ':job:' .. id, 'opts')
  if not opts or not string.find(opts, '\161[rf]') then return '' end
  local readable, options = pcall(cmsgpack.unpack, opts)
  if not readable or type(options) ~= 'table' then return '' end
  local ttl, keep = tonumber(options.r), type(options.f) == 'table' and options.f or {}
  if ttl and ttl >= 1 then return ' t' .. digits(ttl) end
  local count, age = tonumber(keep[1]), tonumber(keep[2])
  return count and age and digits(count) .. ' ' .. digits(age) or ''
end

-- Return the reason for a job that the server fails: the cause or, for a revoked job, the reason of the revocation.
function finish.reason_of(base, id, cause)
  local said = cause == 'revoked' and redis.call('HGET', base .. ':job:' .. id, 'revoked')
  return said and 'revoked: ' .. said or cause
end

-- Fail a job that has just left its location, for a cause that the server has found. The record must exist. entry: the
-- entry of the location; later: the table of finish.note if the caller stores the jobs in it, nil to store this job
-- now; said: the reason, if it is not the one of the cause.
function finish.fail(base, id, entry, cause, call, later, said)
  local reason = said or finish.reason_of(base, id, cause)
  record.keep_added(base, id, entry)
  redis.call('HSET', base .. ':job:' .. id, 'place', 'failed ' .. entry, 'ended', call.now, 'reason', reason,
    'cause', cause)
  -- The sweep has noted a lost lease before. A revoked job has not failed by itself.
  if cause ~= 'stalled' and cause ~= 'revoked' then
    redis.call('HSET', base .. ':job:' .. id, 'group', failure_groups.found(base, id, cause, reason, nil, call))
  end
  job_history.note_end(base, id, cause, reason, call)
  events.note(call.lines, 'failed', id, reason)
  event_content.note(base, 'failed', id, nil, call)
  dead_letters.move(base, id, cause, said or cause, call)
  chunks.close(base, id, 'failed', '', call)
  local done = later or {}
  if cause == 'revoked' then finish.note_revoked(done) end
  finish.note(done, 'failed', finish.own_policy(base, id), id, '')
  if not later then finish.store(base, done, call) end
end
