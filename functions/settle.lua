-- settle: ends N runs and claims M jobs in one call.
--   settleAndClaim  channel number consumer slots lock flags ran incarnation
--                   g { started policy count entry*count [id*count [key*count]] m result*m }*g
--                   n { code id entry payload option }*n
--       -> { now, refused, jobs, due, listeners, posted, past, settled, claimed }
--     slots    how many jobs the caller can start now; 0 = claim nothing, the caller is not idle
--     lock     the caller's lease, ms
--     flags    one character each: "e" echo to the caller's own channel, to verify that its connection delivers;
--              "u" the caller is not subscribed: do not count on waking it; "i" it may be in `idle`; "v" verify that
--              the caller owns the entries of the runs it settles, see below; "p" the caller starts jobs that are
--              pushed to it, and "g" it has got the ones that were pushed since its last call, see push.lua; "d" the
--              caller can claim plain jobs directly, see direct_claim.lua. The reply is 1 if it does. Then finishClaim
--              replies.
--     ran      "<ms> <ms>": total duration of the completed runs, and of the failed ones
--     g        groups of jobs that completed, by their retention policy. entry: without its prefix; m: 1 if all results
--              are equal, otherwise count. started: of plain jobs the time when they were claimed; "l<that time>" for
--              a group of the tokens "l…". Its entries are members of `runs` (see runs.lua), and the ids of its jobs
--              follow; "k<that time>" for keyed jobs, whose ids are followed by their keys. "l" or "k" alone if the
--              runs began at different times, which costs a lookup
--     n        all other runs
--     code     c complete (payload: result, option: retention policy)
--              r retry    (payload: error, option: "<delay ms> <reason>")
--              f fail     (payload: error, option: "<policy>;<cause>;<reason>", see dead_letters.lua)
--              d delay    (option: "<delay ms>[ <step>]", or "@<due ms>[ <step>]": run again later, no attempt is
--                         counted; payload: the reason, or ''; step: a name by which the next run continues)
--              s suspend  (option: "<timeout ms, -1 = none>[r][k][c<ends>][ <step>]": run again when a signal comes, no
--                         attempt is counted; payload: what the job waits for, the field `waits` of signals.lua; r: the
--                         signals that its runs have got return to the mailbox; k: the caller keeps the function of the
--                         run, see warm_runs.lua; c: run again when a child ends too, besides the <ends> that the run
--                         knows)
--              w wait     (run again when the children that its runs have added have ended; no attempt is counted)
--              b release  (return the job unfinished: no attempt is counted)
--              l limited  (option: "<delay ms>": return the job. Its key, or for an unkeyed job the queue, starts
--                         nothing until then; no attempt is counted)
--     entry    of a run. The key of a keyed job may follow, "k<entry> <key>"; this saves a lookup. When the run began
--              follows the entry of a plain job, "p<entry> <ms>".
--     refused  flat { position, status } of runs that were not settled, groups first: "stale" or "missing".
--              May be '' instead of an empty list, as `jobs` may
--     jobs     claimed, flat: { entry name data opts }*, the entry without a prefix, for a plain job; for any other job
--              { entry name data 1 id opts fence history }*. history: false for a job that never ran, or a text:
--              "<route>" of a keyed one, "<added> <route>" of a prioritized or LIFO one; otherwise { failures stalls
--              added progress route letter hand-over }. The last one may be missing, see signals.lua. One flat list,
--              because a table for each job would cost more than its values. Compact jobs that start together are
--              { '' head '' 1 ids '' '' texts }: their tokens are the head with three digits, from 000 on, and
--              blanks separate their ids. texts: a list, see compact.lua.
--     due      when an idle caller should claim again (ms; 0 = never, it will be woken)
--     listeners  the number of receivers of the echo; -1: none was requested, or the caller may not publish
--     posted   1: the outbox should be relayed, or work of flows is left; plus 2: the server does not know the caller's
--              previous call, see below; plus 4: the call has sent a result to a waiting client
--     past     microseconds beyond `now`, so that a caller can sleep until `due` more exactly
--     settled  the number of runs that the call has settled, the groups first. The others keep their leases, and the
--              caller sends them in its next call.
--     claimed  when the jobs were claimed, ms; before `now` in the reply to a repeated call
--   settleAndClaim  channel number caller ran started entry result -> as above, or microseconds
--     the short form, for one plain job that completed, and a caller that claims; see one_run.lua
--     caller        "<slots> <lock> <flags> <incarnation>" of the consumer with the name of the channel
--     ran           the duration of the run, ms
--     microseconds  nothing was refused, claimed or posted, and `due` is 0: `now` and `past` as one number; negative if
--                   the call has sent a result to a waiting client
--   finishClaim  count -> as settleAndClaim, or nil: the caller does not claim directly. jobs: without the plain jobs
--                that the caller has read
--     count    the number of entries that the caller has asked for
-- O(n + slots), both limited by the caller. The call also ends when its budget is spent: it settles at least one step
-- of runs, then claims at least one step of jobs.
--
-- Stale outcomes. A worker that lost its lease must not settle: the job may already run elsewhere, or may have ended
-- there. Checking each record before each settle would cost a read per job. But a reclaimed, returned or removed job
-- has lost its entry in `fifo` or its member in `runs`. So an entry that XACK still finds pending, and a member that
-- ZREM still finds, is the job's present lease. Therefore the acknowledgement is the check: release_leases acknowledges
-- the whole batch and compares one count. If the count is too low, `release` reads each record to find the stale runs.
-- The order matters: acknowledge before any outcome is written, and write no outcome for a run in `refused`.
--
-- After a failover that lost a claim this is not enough. The job waits again under the same entry of `fifo`, another
-- worker claims it, and XACK does not check which consumer owns an entry. Replication keeps the order of writes. So a
-- server that knows the caller's previous call also knows every claim before it. A server that does not know it checks
-- the consumer of each entry (`disown`) and reports this in `posted`. From then on the caller sends "v", until it has
-- renewed its leases and so knows which of them it lost.

local settle = {}
local FIELDS = 5
local DIRECTLY = 1
local GROUPS = 9                 -- the position of the number of groups
local MAX_BATCH = 1000
-- A run that suspends its job may read its mailbox.
local SIGNALLED_STEP = 4
local SUSPENDS = 's'
local SMALL = 8
local FIFO, KEYED = 112, 107     -- the first bytes of the tokens "p…" and "k…"

-- Return code, id, entry, payload and option of the i-th run outside of the groups. (A table for each run would cost
-- more than reading them.)
local function run_at(args, i)
  local at = args.runs + (i - 1) * FIELDS
  return args[at + 1], args[at + 2], args[at + 3], args[at + 4], args[at + 5]
end

-- Split a token from the key after it, or from the start of the run.
local function split(args, i, at)
  local token, rest = string.match(args[at], '^([pk]%d+%-%d+) (.+)$')
  if not token then fail('ARGUMENT', 'not a lease token: ' .. args[at]) end
  args[at] = token
  args.rests[i] = rest
end

-- Check the arguments. Return the number of runs outside of the groups, and of the others. Sets in args: groups;
-- runs, the position before the first other run; rests, what follows the tokens of these, by position; has_keys; and
-- has_others, if some outcomes are not `c`.
local function parse(args)
  local groups, at, total = completing.parse(args, GROUPS + 1, integer('number of groups', args[GROUPS]))
  local n = integer('count', args[at])
  if n < 0 or n + total > MAX_BATCH or #args ~= at + n * FIELDS then
    fail('ARGUMENT', 'the argument list does not hold ' .. tostring(args[at]) .. ' runs')
  end
  if not string.find(args[7], '^%d+ %d+$') then
    fail('ARGUMENT', 'ran must be "<ms> <ms>", found ' .. args[7])
  end
  args.groups, args.runs, args.rests = groups, at, {}
  for i = 1, n do
    local code, entry, option = args[at + 1], args[at + 3], args[at + 5]
    if not outcomes.check[code] then fail('ARGUMENT', 'unknown outcome ' .. code) end
    if option ~= '' or code ~= 'c' then
      outcomes.check[code](option, args[at + 4])
      if code ~= 'c' then args.has_others = true end
    end
    if not string.find(entry, '^[plk]%d+%-%d+$') then split(args, i, at + 3) end
    if string.byte(entry) == KEYED then args.has_keys = true end
    at = at + FIELDS
  end
  return n, total
end

-- Return the stored reply to a worker's last call, and its values. The second value is the list of the tokens that the
-- call has claimed; see claim_tokens.each.
local function last_reply(base, consumer)
  local kept = redis.call('GET', base .. ':call:' .. consumer)
  -- The sweep has already written, so a stored reply that was damaged by hand must not raise.
  local readable, answer = pcall(cmsgpack.unpack, kept and string.match(kept, '^%d+ (.*)$') or '')
  return kept, readable and type(answer) == 'table' and answer or {}
end

-- Return true if a token is among the stored ones. tokens: see claim_tokens.each.
local function contains(tokens, token)
  return type(tokens) == 'table' and claim_tokens.has(tokens, token)
end

-- Return the lease of a worker's last call, ms, and when that call or a push after it has claimed the token, ms; nil as
-- the second value if neither has.
function plain.last_claim(base, consumer, token)
  local kept, answer = last_reply(base, consumer)
  if contains(answer[2], token) then return tonumber(answer[5]), answer[7] end
  local pushed, at = push.tokens_in(kept)
  return tonumber(answer[5]), contains(pushed, token) and at or nil
end

-- Return the entries of the channel's last claim, and of the jobs that were pushed since. The sweep uses them: these
-- jobs may not have reached their worker.
function settle.claimed_last(base, consumer)
  local kept, answer = last_reply(base, consumer)
  local tokens = {}
  for _, text in ipairs(type(answer[2]) == 'table' and answer[2] or {}) do tokens[#tokens + 1] = text end
  for _, text in ipairs(push.tokens_in(kept) or {}) do tokens[#tokens + 1] = text end
  return (claim_tokens.each(base, consumer, tokens))
end

-- Return true if a job has a record, or had one that was deleted by hand.
local function has_record(base, id, raw, call)
  return exists(base .. ':job:' .. id)
    or (call.seen.recorded and redis.call('SISMEMBER', base .. ':recorded', raw) == 1)
end

-- Give the plain jobs among the runs their records, before their entries are deleted. Return the entries that must not
-- be deleted, because their plain jobs do not run any more.
local function record_plain(base, args, first, last, call)
  local staying, named = {}, {}
  for i = first, last do
    local _, id, entry = run_at(args, i)
    local raw = string.sub(entry, 2)
    if string.byte(entry) == FIFO and not has_record(base, id, raw, call) then
      local fields = not named[raw] and completing.leased(base, raw, call)
      if fields then
        local started = tonumber(args.rests[i] or call.now)
        plain.record_run(base, raw, fields, started, plain.own_lease(fields[3]) or call.lock, call.seen)
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

-- End the leases of these runs: acknowledge and delete the entries of `fifo`, and remove the other runs from `runs`.
-- Release their keys. Return true if every run held its lease.
local function release_leases(base, args, first, last, call)
  local waited, ids, tokens, of_keys, keys = {}, {}, {}, {}, {}
  for i = first, last do
    local _, id, entry = run_at(args, i)
    if string.byte(entry) == FIFO then
      waited[#waited + 1] = string.sub(entry, 2)
    else
      local n = #ids + 1
      ids[n], tokens[n], of_keys[n] = id, entry, false
      if string.byte(entry) == KEYED then
        of_keys[n] = args.rests[i] or runs.key_of(base, id, entry) or ''
        keys[#keys + 1] = of_keys[n]
      end
    end
  end
  local elsewhere = ids[1] and runs.remove(base, ids, tokens, of_keys) or 0
  local valid = entries.acknowledge(base .. ':fifo', waited) + elsewhere == last - first + 1
  -- The keys of the runs are released only if these still held their leases.
  if elsewhere < #ids then keys = runs.held_keys(base, ids, tokens, of_keys, elsewhere) end
  local staying = waited[1] and record_plain(base, args, first, last, call)
  if not valid and waited[1] then waited = without(waited, staying) end
  -- If a run had lost its lease, the entries are not all acknowledged by this call.
  entries.delete_acknowledged(base .. ':fifo', waited, not valid or call.seen.results)
  if keys[1] then keyed.release(base, keys, call) end
  return valid
end

-- Replace the tokens of runs that another consumer holds with one that no run has. They are then refused like a lost
-- lease.
local function disown(base, args, first, last)
  for i = first, last do
    local at = args.runs + (i - 1) * FIELDS + 3
    local entry = args[at]
    local holder = runs.consumer_of(base, args[at - 1], entry)
    if holder and holder ~= args[3] then args[at] = string.sub(entry, 1, 1) .. '0-0' end
  end
end

-- Release the leases and keys of the runs. Return, by position, the runs that had already lost their lease.
local function release(base, args, first, last, call)
  local refused, settled = {}, {}
  if release_leases(base, args, first, last, call) or not entries.fenced then return refused end
  for i = first, last do
    local _, id, entry = run_at(args, i)
    local state, at = plain.location(base, id)
    if state ~= 'active' or at ~= entry or settled[entry] then refused[i] = state and 'stale' or 'missing' end
    settled[entry] = true
  end
  return refused
end

-- Return the code, the payload and the option of a run whose job was revoked: it fails, unless it completed.
local function after_revocation(base, id, code, payload, option)
  if code == 'c' then return code, payload, option end
  if code ~= 'f' and code ~= 'r' then payload = '' end    -- it is not an error
  local policy = code == 'f' and string.match(option, '^[^;]*') or finish.own_policy(base, id)
  return 'f', payload, policy .. ';revoked;' .. finish.reason_of(base, id, 'revoked')
end

-- Give the compact jobs among the runs their records, because none of these runs is in a group.
local function open_compact(base, args, first, last, refused, call)
  local ids, tokens = {}, {}
  for i = first, last do
    local _, id, entry = run_at(args, i)
    if string.byte(entry) ~= FIFO and not refused[i] then ids[#ids + 1], tokens[#tokens + 1] = id, entry end
  end
  compact_ends.open(base, ids, tokens, call)
end

-- Settle the runs of one step. before: how many runs the groups have. Collect the jobs that have ended in `done`, and
-- the refused runs, flat, in `answer`.
local function settle_step(base, args, first, last, before, done, answer, call)
  if call.verify then disown(base, args, first, last) end
  local refused = release(base, args, first, last, call)
  local stamp, revoking = digits(call.now), call.seen.revoking and base .. ':revoking'
  if call.seen.compact then open_compact(base, args, first, last, refused, call) end
  for i = first, last do
    if not refused[i] then
      local code, id, entry, payload, option = run_at(args, i)
      if revoking and redis.call('SISMEMBER', revoking, id) == 1 then
        code, payload, option = after_revocation(base, id, code, payload, option)
      end
      refused[i] = outcomes.apply[code](base, stamp, call, done, id, entry, payload, option)
    end
  end
  for i, status in pairs(refused) do
    if status == 'missing' then record.lost(base, (select(2, run_at(args, i))), call) end
    answer[#answer + 1], answer[#answer + 2] = before + i, status
    -- If the job was removed, this outcome proves that the run has ended.
    stopping.finish(base, args[3], {(select(3, run_at(args, i)))}, call)
  end
end

-- Return the last run of a step that begins with `first`, and ends with `last` at the latest. The step ends before the
-- mailboxes of its jobs have too many bytes.
local function end_of_signalled(base, args, first, last)
  local ids, positions = {}, {}
  for i = first, last do
    local code, id = run_at(args, i)
    if code == SUSPENDS then ids[#ids + 1], positions[#positions + 1] = id, i end
  end
  if not ids[2] then return last end
  local beyond = positions[signals.fitting(base, ids) + 1]
  return beyond and beyond - 1 or last
end

-- Settle the runs outside of the groups until the time is spent. Return how many are settled.
local function settle_others(base, args, n, total, done, answer, call)
  local seen = call.seen
  local is_costly = args.has_others or seen.streamed or seen.flowed or seen.stepped
  local most = seen.signalled and SIGNALLED_STEP or settle_groups.usual_step(args.has_keys, is_costly, seen)
  local step, last = claim.usual_step(most), 0
  while last < n do
    local first = last + 1
    last = math.min(last + step, n)
    if seen.signalled then last = end_of_signalled(base, args, first, last) end
    settle_step(base, args, first, last, total, done, answer, call)
    if last == n then break end
    -- The review of the keys that this step has freed takes as long as the step, so it comes before the clock is read.
    keyed.review(base, call)
    -- finish.store reports the ends of jobs of flows to their plans, after the clock was read.
    if budget.has_settled_enough(call.budget) or settle_groups.is_enough_of_flows(last, call.seen) then break end
  end
  return last
end

-- Settle runs from the first one on, until the time is spent; total: how many of them are in groups. Return the refused
-- ones, flat, and how many are settled.
--
-- A step writes everything that its runs need, except for what finish.store writes for all of them. So the call may end
-- after any step. The runs of the other steps still hold their leases and keys, because only a step acknowledges
-- entries, and the next call of the worker settles them like any other runs. `ran` is the exception. The worker cannot
-- know how many of its runs this call settles, so this call counts the duration of all of them, and the worker
-- subtracts the others from the duration of its next call (worker/run_times.py).
local function settle_runs(base, args, n, total, call)
  if n + total == 0 then return {}, 0 end
  call.left = finish.most_removed(n + total)
  local answer, done = {}, {}
  local settled, goes_on = settle_groups.run(base, args, done, answer, call)
  if goes_on and n > 0 then settled = settled + settle_others(base, args, n, total, done, answer, call) end
  local completed, failed = string.match(args[7], '^(%d+) (%d+)$')
  finish.store(base, done, call, {completed = tonumber(completed), failed = tonumber(failed)})
  return answer, settled
end

-- Wake other workers for the rest of the startable jobs, because the caller has no free slot left, and may have taken
-- jobs that others were woken for. Under limits of the queue, more jobs may start because an instant has come, and only
-- this call notices that.
local function pass_on(base, startable, call)
  if startable == 0 and not (call.seen.limits and exists(base .. ':idle')) then return end
  local ready = locations.ready_count(base)
  wakeup.wake(base, call.seen.limits and limits.allowance(base, ready, call) or math.min(startable, ready))
end

-- End the pause of the queue if its end has come. Return true if it has ended.
local function ends_pause(base, call)
  local ends = call.seen.paused
  if ends == true or ends > call.now then return false end
  redis.call('HSET', base .. ':meta2', 'paused', '0')
  settings.note_hold(base, 'paused', '')
  call.seen.paused = false
  events.note(call.lines, 'resumed', '')
  call.startable = call.startable + locations.ready_count(base)
  return true
end

-- Update `idle` and the timer after a claim of n jobs, and wake other workers. more: the caller calls again
-- immediately; startable: the number of jobs that were startable before the claim. Return the next due instant.
local function after_claim(base, caller, n, more, startable, call)
  local due = call.now
  if more then
    redis.call('ZREM', base .. ':idle', caller.consumer)
  else
    due = wakeup.settle_down(base, caller, caller.slots - n, call)
  end
  if more or n == caller.slots then pass_on(base, math.max(startable, call.startable), call) end
  return due
end

-- Claim, or register as idle, or leave. Return the claimed jobs and the next due instant. Return nothing if the caller
-- claims directly.
local function claim_or_wait(base, caller, call)
  local consumer, slots, seen = caller.consumer, caller.slots, call.seen
  scheduled.promote(base, call, slots > 0 and not seen.limits)
  if seen.paused and not ends_pause(base, call) then
    return {n = 0, tokens = {}}, wakeup.settle_down(base, caller, slots, call)
  end
  local allowed = limits.allowance(base, slots, call)
  if slots == 0 then
    -- A worker that stops may have been woken for jobs that it will not take. Wake others for them.
    wakeup.leave(base, consumer, call)
    wakeup.wake(base, math.max(call.startable, locations.ready_count(base)))
    return {n = 0, tokens = {}}, 0
  end
  caller.reads_from = caller.is_direct and direct_claim.open(base, call)
  if caller.reads_from then return nil end
  local startable, jobs, more = call.startable, {n = 0, tokens = {}}, false
  if call.ends_jobs then more = true elseif allowed > 0 then jobs, more = claim.take(base, consumer, allowed, call) end
  limits.started(base, jobs.n, call)
  if seen.limits and jobs.n == allowed then limits.allowance(base, slots, call) end
  if call.behind and jobs.n < slots then more = true end
  return jobs, after_claim(base, caller, jobs.n, more, startable, call)
end

-- Return the jobs that were pushed to the caller and have not reached it, like claimed jobs. reply: its stored last
-- reply. They take slots of the caller, which does not know of them.
local function read_missed(base, caller, reply, flags)
  local missed = not string.find(flags, 'g', 1, true) and push.tokens_in(reply)
  if not missed then return nil end
  local out = claim.reread(base, caller.consumer, missed)
  caller.slots = math.max(0, caller.slots - out.n)
  return out
end

local function append_jobs(jobs, more)
  for i = 1, #more do jobs[#jobs + 1] = more[i] end
  for _, token in ipairs(more.tokens) do jobs.tokens[#jobs.tokens + 1] = token end
  jobs.n = jobs.n + more.n
end

-- End a call that has settled and claimed. begun: { call, caller, refused, settled, unbroken, missed, has_runs };
-- unbroken: true if the server knows the caller's previous call. Return the reply.
local function finish_call(base, args, begun, jobs, due)
  local call, caller, settled, unbroken = begun.call, begun.caller, begun.settled, begun.unbroken
  if jobs.n > 0 then push.note_lease(base, call.shortest, call) end
  if begun.missed then append_jobs(jobs, begun.missed) end
  keyed.review(base, call)
  local seen = call.seen
  if seen.limits or ((begun.has_runs or call.slept) and (seen.scheduled or seen.sleeping or seen.suspended)) then
    wakeup.due_changed(base, caller.subscribed and due > 0 and caller.consumer, call)
  end
  chunks.announce(base, call)
  if call.failures then failure_groups.write(base, call) end
  events.write(base, call)
  request.remember(base, args[1], args[2], {begun.refused, jobs.tokens, due, settled, call.lock, not unbroken, call.now,
    string.find(args[6], 'p', 1, true) ~= nil}, request.WEEK_MS)
  local posted = (seen.posted or seen.flow_work) and 1 or 0
  return {call.now, begun.refused, jobs, due, -1, posted + (unbroken and 0 or 2) + (call.notified and 4 or 0),
    call.past or 0, settled, call.now}
end

-- The state of a call whose caller claims directly, between the two functions of its transaction.
local open_call

-- Execute a call for the first time. reply: the stored reply to the caller's previous call. Return the reply, or
-- DIRECTLY if the caller reads the entries itself.
local function first_call(base, args, unbroken, reply)
  local flags = args[6]
  local caller = {consumer = args[3], slots = integer('slots', args[4]),
    subscribed = not string.find(flags, 'u', 1, true), registered = string.find(flags, 'i', 1, true)}
  local lock = integer('lock', args[5])
  local spent = budget.of_claim(caller.slots <= SMALL and #args <= GROUPS + 2 + SMALL * FIELDS)
  local n, total = parse(args)
  local call = queue_flags.call(base)
  -- A worker that claims nothing need not know about a new queue: the runs of the old one are refused in any case.
  if caller.slots > 0 then incarnation.check(args[8], call.seen.incarnation) end
  call.lock, call.shortest, call.budget, call.consumer = lock, lock, spent, caller.consumer
  call.verify = not unbroken or string.find(flags, 'v', 1, true)
  local refused, settled = settle_runs(base, args, n, total, call)
  limits.freed(settled, call)
  local missed = unbroken and read_missed(base, caller, reply, flags)
  if call.seen.flow_work then wakeup.advance_flows(base, call) end
  if not missed and not string.find(flags, 'e', 1, true) then
    caller.is_direct = string.find(flags, 'd', 1, true)
  end
  local begun = {call = call, caller = caller, refused = refused, settled = settled, unbroken = unbroken,
    missed = missed, has_runs = n + total > 0}
  local jobs, due = claim_or_wait(base, caller, call)
  if jobs then return finish_call(base, args, begun, jobs, due) end
  open_call = {base = base, args = args, begun = begun}
  return DIRECTLY
end

register('settleAndClaim', function(base, args)
  open_call = nil
  local kept, unbroken, reply, key = request.replay(base, args[1], args[2], integer('request number', args[2]))
  if not kept then
    local call, consumer, slots = one_run.begin(base, args, unbroken, reply, key)
    if call then return one_run.settle(base, args, call, consumer, slots) end
  end
  if one_run.is_short(args) then args = one_run.in_long_form(args) end
  local answer
  if kept then
    local now, past = clock.now()
    local posted = (exists(base .. ':outbox') and 1 or 0) + (kept[6] and 2 or 0)
    answer = {now, kept[1], claim.reread(base, args[3], kept[2]), kept[3], -1, posted, past or 0, kept[4],
      kept[7] or now}
  else
    answer = first_call(base, args, unbroken, reply)
  end
  if string.find(args[6], 'e', 1, true) then answer[5] = wakeup.send(base, args[3], 'e') or -1 end
  return answer
end, {'allow-oom'})

register('finishClaim', function(base, args)
  local open = open_call
  open_call = nil
  if not open or open.base ~= base then return false end
  local begun, most = open.begun, integer('count', args[1])
  local call, caller = begun.call, begun.caller
  local n, tokens = direct_claim.close(base, caller.consumer, caller.reads_from, call)
  local due = after_claim(base, caller, n, n == most and n < caller.slots, call.startable, call)
  return finish_call(base, open.args, begun, {n = n, tokens = tokens}, due)
end, {'allow-oom'})
