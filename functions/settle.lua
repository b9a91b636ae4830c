-- settle: ends N runs and claims M jobs in one call.
--   settleAndClaim  channel number consumer slots lock flags ran incarnation
--                   g { started policy count entry*count m result*m }*g
--                   n { code id entry payload option }*n
--       -> { now, refused, jobs, due, listeners, posted, past, claimed }
--     slots    how many jobs the caller can start now; 0 = claim nothing, the caller is not idle
--     lock     the caller's lease, ms
--     flags    one character each: "e" echo to the caller's own channel, to verify that its connection delivers;
--              "u" the caller is not subscribed: do not count on waking it; "i" it may be in `idle`; "v" verify that
--              the caller owns the entries of the runs it settles, see below
--     ran      "<ms> <ms>": total duration of the completed runs, and of the failed ones
--     g        groups of plain jobs that completed, by the time when they were claimed and by their retention policy.
--              entry: without its prefix; m: 1 if all results are equal, otherwise count
--     n        all other runs
--     code     c complete (payload: result, option: retention policy)
--              r retry    (payload: error, option: "<delay ms> <reason>")
--              f fail     (payload: error, option: "<policy>;<cause>;<reason>", see dead_letters.lua)
--              d delay    (option: "<delay ms>": run again later, no attempt is counted; payload: the reason, or '')
--              b release  (return the job unfinished: no attempt is counted)
--              l limited  (option: "<delay ms>": return the job. Its key, or for an unkeyed job the queue, starts
--                         nothing until then; no attempt is counted)
--     entry    of a run. The key of a keyed job may follow, "k<entry> <key>"; this saves a lookup. When the run began
--              follows the entry of a plain job, "p<entry> <ms>".
--     refused  flat { position, status } of runs that were not settled, groups first: "stale" or "missing"
--     jobs     claimed, flat: { entry name data opts }*, the entry without a prefix, for a plain job; for any other job
--              { entry name data 1 id opts fence history }*. history: false for a job that never ran, { route } for a
--              keyed job that never ran, otherwise { failures stalls added progress route letter }. One flat list,
--              because a table for each job would cost more than its values.
--     due      when an idle caller should claim again (ms; 0 = never, it will be woken)
--     listeners  the number of receivers of the echo; -1: none was requested, or the caller may not publish
--     past     microseconds beyond `now`, so that a caller can sleep until `due` more exactly
--     claimed  when the jobs were claimed, ms; before `now` in the reply to a repeated call
--     posted   1: the call wrote to the outbox, which should be relayed; plus 2: the server does not know the caller's
--              previous call, see below
-- O(n + slots), both limited by the caller.
--
-- The fence. A worker that lost its lease must not settle: the job may already run elsewhere, or may have ended there.
-- Checking each record before each settle would cost a read per job. But a reclaimed, returned or removed job has lost
-- its entry in the stream, so an entry that XACK still finds pending is the job's present lease. Therefore the
-- acknowledgement is the check: release_entries acknowledges the whole batch and compares one count. Only if the count
-- is short does `release` read each record to find the runs that were stale. The order matters: acknowledge before any
-- outcome is written, and write no outcome for a run in `refused`.
--
-- After a failover that lost a claim this is not enough. The job waits again under the same entry of `stream`, another
-- worker claims it, and XACK does not check which consumer owns an entry. Replication keeps the order of writes. So a
-- server that knows the caller's previous call also knows every claim before it. A server that does not know it checks
-- the consumer of each entry (`disown`) and reports this in `posted`. From then on the caller sends "v", until it has
-- renewed its leases and so knows which of them it lost.

local settle = {fenced = true}
local FIELDS = 5
local HEAD = 9                   -- the position of the number of groups
local MAX_BATCH = 1000
local FIFO, KEYED = 112, 107     -- the first bytes of the tokens "p…" and "k…"

-- Return code, id, entry, payload and option of the i-th run. (A table for each run would cost more than reading them.)
local function run_at(args, i)
  local at = args.runs + (i - 1) * FIELDS
  return args[at + 1], args[at + 2], args[at + 3], args[at + 4], args[at + 5]
end

local check = {}

function check.c(option) finish.check_policy(option) end

function check.f(option) finish.check_policy(string.match(option, '^([^;]*);[a-z_]+;') or '?') end

function check.r(option) integer('delay', string.match(option, '^(%d+) ')) end

function check.d(option) integer('delay', option) end

check.l = check.d

function check.b() end

-- Split a token from the key after it, or from the start of the run.
local function split(args, i, at)
  local token, rest = string.match(args[at], '^([pk]%d+%-%d+) (.+)$')
  if not token then fail('ARGUMENT', 'not a lease token: ' .. args[at]) end
  args[at] = token
  args.rests[i] = rest
end

-- Read the groups. Return the position after them, and the number of their jobs.
local function parse_groups(args)
  local groups, at, total = {}, HEAD + 1, 0
  for g = 1, integer('number of groups', args[HEAD]) do
    local started, count = args[at], integer('count', args[at + 2])
    integer('started', started)
    if args[at + 1] ~= '' then finish.check_policy(args[at + 1]) end
    local same = at + 3 + count
    local m = integer('number of results', args[same])
    if count < 1 or not (m == 1 or m == count) then fail('ARGUMENT', count .. ' runs with ' .. m .. ' results') end
    groups[g] = {started = started, policy = args[at + 1], first = at + 3, last = same - 1, results = same, many = m > 1}
    at, total = same + m + 1, total + count
  end
  args.groups = groups
  return at, total
end

local function parse(args)
  local at, total = parse_groups(args)
  local n = integer('count', args[at])
  if n < 0 or n + total > MAX_BATCH or #args ~= at + n * FIELDS then
    fail('ARGUMENT', 'the argument list does not hold ' .. tostring(args[at]) .. ' runs')
  end
  if not string.find(args[7], '^%d+ %d+$') then
    fail('ARGUMENT', 'ran must be "<ms> <ms>", found ' .. args[7])
  end
  args.runs, args.rests = at, {}
  for i = 1, n do
    local code, entry, option = args[at + 1], args[at + 3], args[at + 5]
    if not check[code] then fail('ARGUMENT', 'unknown outcome ' .. code) end
    if option ~= '' or code ~= 'c' then check[code](option) end
    if not string.find(entry, '^[plk]%d+%-%d+$') then split(args, i, at + 3) end
    at = at + FIELDS
  end
  return n, total
end

-- Return the entries of the channel's last claim. The sweep uses them: these jobs may not have reached their worker.
function settle.claimed_last(base, consumer)
  local kept = redis.call('GET', base .. ':call:' .. consumer)
  -- The sweep has already written, so a stored reply that was damaged by hand must not raise.
  local readable, answer = pcall(cmsgpack.unpack, kept and string.match(kept, '^%d+ (.*)$') or '')
  return readable and type(answer) == 'table' and answer[2] or {}
end

-- Return the fields of the entry of a plain job that still ran when this call acknowledged it, otherwise nil. Whoever
-- takes a lease away deletes the entry, or the job has completed. So an entry that exists was pending, unless it has not
-- been delivered, which means after the group was destroyed that it will be delivered again.
local function leased(base, raw, call)
  local found = redis.call('XRANGE', base .. ':fifo', raw, raw)[1]
  if not found or found[2][1] == '' then return nil end
  local id = plain.id_of(raw)
  if redis.call('HEXISTS', base .. ':results', id) == 1 then return nil end
  local lost = call.seen.regrouped and tonumber(id) <= call.seen.regrouped
  if not lost and entries.before(entries.last_delivered(base .. ':fifo'), raw) then return nil end
  return found[2]
end

-- Return true if a job has a record, or had one that somebody deleted by hand.
local function has_record(base, id, raw, call)
  return exists(base .. ':job:' .. id)
    or (call.seen.recorded and redis.call('SISMEMBER', base .. ':recorded', raw) == 1)
end

-- Give the plain jobs among the runs their records, before their entries are deleted. Return the entries that must not
-- be deleted: their plain jobs do not run under them.
local function record_plain(base, args, n, call)
  local staying, named = {}, {}
  for i = 1, n do
    local _, id, entry = run_at(args, i)
    local raw = string.sub(entry, 2)
    if string.byte(entry) == FIFO and not has_record(base, id, raw, call) then
      local fields = not named[raw] and leased(base, raw, call)
      if fields then
        local started = tonumber(args.rests[i] or call.now)
        plain.record_run(base, raw, fields, started, plain.own_lease(fields[3]) or call.lock)
        call.seen.recorded = true
      elseif not named[raw] and plain.find(base, plain.id_of(raw)) then
        staying[raw] = true
      end
      named[raw] = true
    end
  end
  return staying
end

local function without(list, removed)
  local rest = {}
  for _, item in ipairs(list) do
    if not removed[item] then rest[#rest + 1] = item end
  end
  return rest
end

-- Acknowledge and delete the entries of all runs, and release their keys. Return true if every entry was still pending.
local function release_entries(base, args, n, call)
  local waited, active, of_keys, keys = {}, {}, {}, {}
  for i = 1, n do
    local entry = args[args.runs + (i - 1) * FIELDS + 3]
    local prefix, raw = string.byte(entry), string.sub(entry, 2)
    if prefix == FIFO then
      waited[#waited + 1] = raw
    else
      active[#active + 1] = raw
      if prefix == KEYED then of_keys[#of_keys + 1], keys[#keys + 1] = raw, args.rests[i] end
    end
  end
  local valid = entries.acknowledge(base .. ':fifo', waited) + entries.acknowledge(base .. ':lane', active) == n
  -- The keys that the caller sent are trusted only if every run holds its lease.
  if not valid or #keys < #of_keys then keys = of_keys[1] and entries.keys_of(base .. ':lane', of_keys) or {} end
  local staying = waited[1] and record_plain(base, args, n, call)
  if not valid and waited[1] then waited = without(waited, staying) end
  -- If a run had lost its lease, the entries are not all acknowledged by this call.
  entries.delete_acknowledged(base .. ':fifo', waited, not valid or call.seen.results)
  entries.delete_acknowledged(base .. ':lane', active, not valid or call.seen.lane_lost)
  if keys[1] then keyed.release(base, keys, call) end
  return valid
end

-- Replace the entries that another consumer owns with an id that no entry has. They are then refused like a lost lease.
local function disown(base, args, n)
  for _, group in ipairs(args.groups) do
    for i = group.first, group.last do
      local holder = entries.consumer_of(base, 'p' .. args[i])
      if holder and holder ~= args[3] then args[i] = '0-0' end
    end
  end
  for i = 1, n do
    local at = args.runs + (i - 1) * FIELDS + 3
    local entry = args[at]
    local holder = entries.consumer_of(base, entry)
    if holder and holder ~= args[3] then args[at] = string.sub(entry, 1, 1) .. '0-0' end
  end
end

-- Release the leases and keys of the runs. Return, by position, the runs that had already lost their lease.
local function release(base, args, n, call)
  local refused, settled = {}, {}
  if release_entries(base, args, n, call) or not settle.fenced then return refused end
  for i = 1, n do
    local _, id, entry = run_at(args, i)
    local state, at = plain.location(base, id)
    if state ~= 'active' or at ~= entry or settled[entry] then refused[i] = state and 'stale' or 'missing' end
    settled[entry] = true
  end
  return refused
end

-- Check a write of final fields after it was made, which saves a read per job. If the write created every field, the
-- record was missing (somebody deleted it by hand). The write has then created a record, and this function removes it.
local function undone(key, written, fields)
  if written < fields then return nil end
  redis.call('UNLINK', key)
  return 'missing'
end

-- Each outcome returns nil, or why the run was refused. `now` is a text: formatting a number for every write would cost
-- more than the write itself. The run's entry is already deleted and its key released.
local apply = {}

function apply.c(base, now, call, done, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local written = redis.call('HSET', key, 'place', 'completed ' .. entry, 'ended', now, 'result', payload)
  if written == 3 then return undone(key, written, 3) end
  finish.note(done, 'completed', option, id, payload)
  local line = events.line(call.lines, 'completed')
  line[#line + 1] = id
end

function apply.f(base, now, call, done, id, entry, payload, option)
  local key = base .. ':job:' .. id
  local policy, cause, reason = string.match(option, '^([^;]*);([a-z_]+);(.*)$')
  local refused = undone(key,
    redis.call('HSET', key, 'place', 'failed ' .. entry, 'ended', now, 'error', payload, 'reason', reason,
      'cause', cause), 5)
  if refused then return refused end
  redis.call('HINCRBY', key, 'failures', 1)
  finish.note(done, 'failed', policy, id, payload)
  events.note(call.lines, 'failed', id, reason)
  dead_letters.move(base, id, cause, reason, call)
end

-- Return the location of a job that runs again later. A keyed job keeps its position in its key's line.
local function put_off(base, id, entry, delay, call)
  local location = scheduled.push(base, id, call.now + delay, call)
  local route = string.sub(entry, 1, 1) == 'k' and keyed.route_of(base, id)
  if route then keyed.rest(base, id, route.key, call) end
  return location
end

function apply.r(base, _, call, _, id, entry, payload, option)
  local key = base .. ':job:' .. id
  if not exists(key) then return 'missing' end
  local delay, reason = string.match(option, '^(%d+) (.*)$')
  record.keep_added(base, id, entry)
  redis.call('HINCRBY', key, 'failures', 1)
  local location = delay == '0' and routes.enter_again(base, id, call) or put_off(base, id, entry, delay, call)
  redis.call('HSET', key, 'place', location, 'error', payload, 'reason', reason)
  events.note(call.lines, 'retrying', id, option)
end

function apply.d(base, _, call, _, id, entry, reason, option)
  local key = base .. ':job:' .. id
  if not exists(key) then return 'missing' end
  record.keep_added(base, id, entry)
  redis.call('HSET', key, 'place', put_off(base, id, entry, option, call))
  if reason ~= '' then redis.call('HSET', key, 'reason', reason) end
  events.note(call.lines, 'delayed', id)
end

function apply.b(base, _, call, _, id, entry)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  returned.push(base, id, entry, call)
  events.note(call.lines, 'returned', id)
end

function apply.l(base, _, call, _, id, entry, _, option)
  if not exists(base .. ':job:' .. id) then return 'missing' end
  local route = string.sub(entry, 1, 1) == 'k' and keyed.route_of(base, id)
  local at = call.now + option
  if route then keyed.pause(base, route.key, at, call) else limits.close_gate(base, at, call) end
  returned.push(base, id, entry, call)
  events.note(call.lines, 'limited', id, option)
end

-- Return the outcome of a run whose job was revoked: it fails, unless it completed.
local function after_revocation(base, id, code, option)
  if code == 'c' then return code, option end
  local policy = code == 'f' and string.match(option, '^[^;]*') or finish.own_policy(base, id)
  return 'f', policy .. ';revoked;' .. finish.reason_of(base, id, 'revoked')
end

-- Acknowledge the entries of a group. Return true if all of them were pending.
local function acknowledge(base, args, group)
  local met = 0
  for from = group.first, group.last, CHUNK do
    met = met + redis.call('XACK', base .. ':fifo', GROUP, unpack(args, from, math.min(from + CHUNK - 1, group.last)))
  end
  return met == group.last - group.first + 1
end

-- Return which jobs of a group have records, by position in args; nil if none can have one.
local function recorded_in(base, args, group, call)
  if not call.seen.recorded then return nil end
  local found = {}
  for i = group.first, group.last do
    found[i] = redis.call('SISMEMBER', base .. ':recorded', args[i]) == 1
  end
  return found
end

-- Complete a job of a group as a job with a record. Return why that is refused, or nil.
local function complete_as_record(base, raw, group, payload, done, call)
  local id, entry = plain.id_of(raw), 'p' .. raw
  local missing = not exists(base .. ':job:' .. id)
  if missing and redis.call('SISMEMBER', base .. ':recorded', raw) == 1 then
    entries.delete(base .. ':fifo', {raw})
    record.lost(base, id, call)
    return 'missing'
  elseif missing then
    local found = redis.call('XRANGE', base .. ':fifo', raw, raw)[1]
    if not found then return 'missing' end     -- the entry was deleted by hand
    local fields = found[2]
    plain.record_run(base, raw, fields, tonumber(group.started), plain.own_lease(fields[3]) or call.lock)
  end
  entries.delete(base .. ':fifo', {raw})
  return apply.c(base, digits(call.now), call, done, id, entry, payload, group.policy)
end

-- Return the highest number of a group.
local function newest_in(args, group)
  local newest = 0
  for i = group.first, group.last do
    local number = tonumber(plain.id_of(args[i])) or 0
    if number > newest then newest = number end
  end
  return newest
end

-- Return why a job of a group does not complete; nil if its lease was valid.
local function refusal(base, raw, named, call)
  local first = not named[raw]
  named[raw] = true
  if raw == '0-0' then return 'stale' end
  local id = plain.id_of(raw)
  local state, at = record.location(base, id)
  if state == 'active' and at == 'p' .. raw and first then return nil end
  if not state and first and leased(base, raw, call) then return nil end
  return (state or plain.find(base, id)) and 'stale' or 'missing'
end

-- Complete the plain jobs of a group. refused: by position, filled from `at` on.
local function complete_group(base, args, group, at, refused, done, call)
  local valid, recorded = acknowledge(base, args, group), recorded_in(base, args, group, call)
  local count, ttl = finish.kept_by(group.policy)
  local newest, named = newest_in(args, group), {}
  local line, stored, left, n = nil, {}, {}, 0
  local head = digits(call.now) .. ' ' .. group.started .. ' '
  for i = group.first, group.last do
    local raw, position = args[i], at + i - group.first
    local payload = args[group.results + (group.many and i - group.first + 1 or 1)]
    local why = not valid and settle.fenced and refusal(base, raw, named, call)
    if why then
      refused[position] = why
    else
      local id = plain.id_of(raw)
      if ttl or (recorded and recorded[i]) or (count ~= 0 and results.is_late(base, tonumber(id), newest, count, call.seen)) then
        refused[position] = complete_as_record(base, raw, group, payload, done, call)
      else
        line = line or events.line(call.lines, 'completed')
        line[#line + 1] = id
        left[#left + 1] = raw
        n = n + 1
        if count ~= 0 then stored[2 * n - 1], stored[2 * n] = id, head .. payload end
      end
    end
  end
  done.plain = (done.plain or 0) + n
  if call.seen.started and n > 0 then plain.forget_starts(base, left) end
  if count == 0 then
    entries.delete_acknowledged(base .. ':fifo', left, not valid or call.seen.results)
  elseif n > 0 then
    results.store(base, stored, call.seen)
    finish.trim_results(base, group.policy, n, call)
  end
end

-- Return the token of a run in a group, by its position.
local function group_entry(args, position)
  for _, group in ipairs(args.groups) do
    local count = group.last - group.first + 1
    if position <= count then return 'p' .. args[group.first + position - 1] end
    position = position - count
  end
end

-- Settle the runs. total: how many of them are in groups. Return the refused ones, flat.
local function settle_runs(base, args, n, total, call)
  if n + total == 0 then return {} end
  local refused, done, seen, position = {}, {}, call.seen, 1
  call.left = finish.most_removed(n + total)
  for _, group in ipairs(args.groups) do
    complete_group(base, args, group, position, refused, done, call)
    position = position + group.last - group.first + 1
  end
  local stale = n > 0 and release(base, args, n, call) or {}
  local stamp = digits(call.now)
  local revoking = seen.revoking and base .. ':revoking'
  for i = 1, n do
    if not stale[i] then
      local code, id, entry, payload, option = run_at(args, i)
      if revoking and redis.call('SISMEMBER', revoking, id) == 1 then
        code, option = after_revocation(base, id, code, option)
      end
      stale[i] = apply[code](base, stamp, call, done, id, entry, payload, option)
    end
  end
  local completed, failed = string.match(args[7], '^(%d+) (%d+)$')
  finish.store(base, done, call, {completed = tonumber(completed), failed = tonumber(failed)})
  local answer = {}
  for i, status in pairs(refused) do
    answer[#answer + 1], answer[#answer + 2] = i, status
    stopping.finish(base, args[3], {group_entry(args, i)}, call)
  end
  for i, status in pairs(stale) do
    local _, id, entry = run_at(args, i)
    if status == 'missing' then record.lost(base, id, call) end
    answer[#answer + 1], answer[#answer + 2] = total + i, status
    -- If the job was removed, this outcome proves that the run has ended.
    stopping.finish(base, args[3], {entry}, call)
  end
  return answer
end

-- The caller has no free slot left. Wake other workers for the rest of the startable jobs, because the caller may have
-- taken jobs that others were woken for. Under limits of the queue, more jobs may start because an instant has come,
-- and only this call notices that.
local function pass_on(base, startable, call)
  if startable == 0 and not (call.seen.limits and exists(base .. ':idle')) then return end
  local ready = locations.ready_count(base)
  wakeup.wake(base, call.seen.limits and limits.allowance(base, ready, call) or math.min(startable, ready))
end

-- Claim, or register as idle, or leave. Return the claimed jobs and the next due instant.
local function claim_or_wait(base, caller, call)
  local consumer, slots, seen = caller.consumer, caller.slots, call.seen
  scheduled.promote(base, call)
  if seen.paused then return {n = 0, tokens = {}}, wakeup.settle_down(base, caller, slots, call) end
  local allowed = limits.allowance(base, slots, call)
  if slots == 0 then
    -- A worker that stops may have been woken for jobs that it will not take. Wake others for them.
    wakeup.leave(base, consumer, call)
    wakeup.wake(base, math.max(call.startable, locations.ready_count(base)))
    return {n = 0, tokens = {}}, 0
  end
  local startable, jobs, more = call.startable, {n = 0, tokens = {}}, false
  if allowed > 0 then jobs, more = claim.take(base, consumer, allowed, call) end
  limits.started(base, jobs.n, call)
  if seen.limits and jobs.n == allowed then limits.allowance(base, slots, call) end
  if call.behind and jobs.n < slots then more = true end
  local due = call.now
  if more then
    redis.call('ZREM', base .. ':idle', consumer)    -- it calls again immediately
  else
    due = wakeup.settle_down(base, caller, slots - jobs.n, call)
  end
  if more or jobs.n == slots then pass_on(base, math.max(startable, call.startable), call) end
  return jobs, due
end

local function first_call(base, args, unbroken)
  local flags = args[6]
  local caller = {consumer = args[3], slots = integer('slots', args[4]),
    subscribed = not string.find(flags, 'u', 1, true), registered = string.find(flags, 'i', 1, true)}
  local lock = integer('lock', args[5])
  local n, total = parse(args)
  local call = queue_flags.call(base)
  -- A worker that claims nothing need not know about a new queue: the runs of the old one are refused in any case.
  if caller.slots > 0 then incarnation.check(args[8], call.seen.incarnation) end
  call.lock = lock
  if n + total > 0 and (not unbroken or string.find(flags, 'v', 1, true)) then disown(base, args, n) end
  local refused = settle_runs(base, args, n, total, call)
  limits.freed(n + total, call)
  local jobs, due = claim_or_wait(base, caller, call)
  keyed.review(base, call)
  local seen = call.seen
  if seen.limits or ((n + total > 0 or call.slept) and (seen.scheduled or seen.sleeping)) then
    wakeup.due_changed(base, caller.subscribed and due > 0 and caller.consumer, call)
  end
  events.write(base, call.lines, call.now)
  request.remember(base, args[1], args[2], {refused, jobs.tokens, due, not unbroken, lock, call.now}, request.WEEK_MS)
  return {call.now, refused, jobs, due, -1, (seen.posted and 1 or 0) + (unbroken and 0 or 2), call.past or 0,
    call.now}
end

register('settleAndClaim', function(base, args)
  integer('request number', args[2])
  local kept, unbroken = request.replay(base, args[1], args[2])
  local answer
  if kept then
    local now, past = clock.now()
    local posted = (exists(base .. ':outbox') and 1 or 0) + (kept[4] and 2 or 0)
    answer = {now, kept[1], claim.reread(base, kept[2]), kept[3], -1, posted, past or 0, kept[6] or now}
  else
    answer = first_call(base, args, unbroken)
  end
  if string.find(args[6], 'e', 1, true) then answer[5] = wakeup.send(base, args[3], 'e') or -1 end
  return answer
end, {'allow-oom'})
