"""Ways to break the library, each one statement. The random model must detect each of them."""

from __future__ import annotations

from typing import Final

from tests.model.compact_mutants import MUTANTS_OF_COMPACT_JOBS
from tests.model.direct_mutants import MUTANTS_OF_DIRECT_CLAIMS
from tests.model.push_mutants import MUTANTS_OF_PUSHES
from tests.model.run_mutants import MUTANTS_OF_RUNS
from tests.model.signal_mutants import MUTANTS_OF_SIGNALS
from tests.model.step_mutants import MUTANTS_OF_STEPS
from tests.model.stream_mutants import MUTANTS_OF_STREAMS
from tests.model.waiter_mutants import MUTANTS_OF_WAITERS

MUTANTS: Final[dict[str, tuple[str, str]]] = {
    "a settle with an old fencing token is accepted": (
        "if release_leases(base, args, first, last, call) or not entries.fenced then",
        "if release_leases(base, args, first, last, call) or true then",
    ),
    "a batch settles one run twice": (" or settled[entry] then", " then"),
    "an update with an old fencing token is accepted": (
        "if entry ~= '' and entries.fenced then",
        "if false then",
    ),
    "a settled entry is not deleted": (
        "  entries.delete_acknowledged(base .. ':fifo', waited, not valid or call.seen.results)\n",
        "",
    ),
    "a settle deletes the entries of older runs": (
        "    if rows[1] then return rows[1][1] end\n",
        "",
    ),
    "a job that cannot start keeps its run": (
        "  if gone[1] then drop(base, batch, gone) end\n",
        "",
    ),
    "the entry of a reclaimed job is not deleted": (
        "  locations.give_up(base, row, call)\n  if active",
        "  if row[6] then keyed.release(base, {row[6]}, call) end\n  limits.freed(1, call)\n  if active",
    ),
    "a due job stays in the set of delayed jobs": ("    if #due > 0 then in_chunks('ZREM', key, nil, due) end\n", ""),
    "a promoted job stays in the set of delayed jobs": (
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)\n",
        "",
    ),
    "a delayed job is due 1 ms too early": (
        "scheduled.push(base, id, call.now + delay, call)\n  local route",
        "scheduled.push(base, id, call.now + delay - 1, call)\n  local route",
    ),
    "a repeated call takes effect again": ("if last == number then return", "if false then return"),
    "a call with an older number is accepted": ("if ahead < 0 then", "if false then"),
    "the reply to a repeated claim names no jobs": (
        "request.remember(base, args[1], args[2], {begun.refused, jobs.tokens, due,",
        "request.remember(base, args[1], args[2], {begun.refused, {}, due,",
    ),
    "a sweep passes over runs with a shorter lease than others": (
        "  if own and own < call.shortest then call.shortest = own end\n",
        "",
    ),
    "the shortest lease is forgotten while jobs run": (
        "  if runs.count(base) > 0 then return end\n",
        "",
    ),
    "a partial add loses the other jobs": (
        "  return call, first, ids, outcomes, last\nend",
        "  return call, first, ids, outcomes, n\nend",
    ),
    "the horizon rises over outcomes that stay": (
        "    removed = removed + in_chunks('HDEL', base .. ':results', nil, numbers)\n",
        "    removed = removed + #numbers\n",
    ),
    "a short acknowledgement of plain runs counts as a full one": (
        "unpack(args, from, to)) == to - from + 1\n",
        "unpack(args, from, to)) >= 0\n",
    ),
    "a plain job with a record is not named as one": (
        "  redis.call('SADD', queue_flags.create(base, 'recorded', seen), raw)\n  redis.call('HDEL'",
        "  redis.call('HDEL'",
    ),
    "the outcomes of plain jobs count as waiting jobs": (
        "    'waiting', redis.call('XLEN', base .. ':fifo') - running - kept + size",
        "    'waiting', redis.call('XLEN', base .. ':fifo') - running + size",
    ),
    "a repeated claim returns no plain job": ("and plain.look(base, id) == 'active' then", "and false then"),
    "a plain job is found under a lower number": (
        "redis.call('XRANGE', base .. ':fifo', id, id, 'COUNT', 1)[1]\n  if found",
        "redis.call('XRANGE', base .. ':fifo', id, '+', 'COUNT', 1)[1]\n  if found",
    ),
    "a step of an add repeats the last job of the step before": (
        "    local from = last + 1\n    last = math.min(last + step, n)\n    add_step",
        "    local from = math.max(1, last)\n    last = math.min(last + step, n)\n    add_step",
    ),
    "a partial settle loses the other runs": (
        "  return answer, settled\nend",
        "  return answer, n + total\nend",
    ),
    "a partial settle repeats its last run": (
        "call.past or 0, settled, call.now}\n",
        "call.past or 0, math.max(1, settled - 1), call.now}\n",
    ),
    "a step of a settle repeats the last run of the step before": (
        "    local first = last + 1\n",
        "    local first = math.max(1, last)\n",
    ),
    "the reply to a repeated partial settle names all runs": (
        "kept[3], -1, posted, past or 0, kept[4],",
        "kept[3], -1, posted, past or 0, MAX_BATCH,",
    ),
    "a partial settle acknowledges all runs": (
        "  local refused = release(base, args, first, last, call)\n",
        "  local refused = release(base, args, first, integer('count', args[HEAD]), call)\n",
    ),
    "retention keeps one job too many": (
        "math.min(ended + kept - count, most)",
        "math.min(ended + kept - count - 1, most)",
    ),
    "retention keeps one job too few": (
        "math.min(ended + kept - count, most)",
        "math.min(ended + kept - count + 1, most)",
    ),
    "retention removes a result that a client still waits for": (
        "  if seen.held then\n    local free",
        "  if false then\n    local free",
    ),
    "one receipt releases a result for all waiting clients": (
        "    if rest and #rest > 0 then\n",
        "    if false then\n",
    ),
    "a receipt does not release its result": ("      received[#received + 1] = id\n", ""),
    "a receipt removes a result before the end of its time to live": (
        "    if not (received and drop == 't') then\n",
        "    if true then\n",
    ),
    "a retried job keeps the clients that waited for its last result": (
        "redis.call('ZREM', base .. ':held', id) == 1 then redis.call('HDEL', base .. ':waiters', id) end",
        "redis.call('ZREM', base .. ':held', id) == 1 then do end end",
    ),
    "released jobs start in reverse order": (
        "redis.call('ZADD', queue_flags.create(base, 'returned', call.seen), position, id)",
        "redis.call('ZADD', queue_flags.create(base, 'returned', call.seen), -position, id)",
    ),
    "a job that is released twice loses its position": ("if order then claimed = claimed .. ' ' .. order end", ""),
    "released jobs wait behind LIFO jobs": (
        "  if seen.returned then take_from(",
        "  if seen.returned and not seen.lifo then take_from(",
    ),
    "every claim of a job has the same fencing token": (
        "string.match(before, '^%d+') + 1",
        "string.match(before, '^%d+') + 0",
    ),
    "one stall too many is allowed": ("stalls > max_stalled", "stalls > max_stalled + 1"),
    "an outage counts as a stall": ("row[3] >= shortest and lease.counted(row[3], outage) or 0", "row[3]"),
    "a renewal does not extend the lease": (
        "    command[n + 1] = 'JUSTID'",
        "    command[n + 1], command[n + 2], command[n + 3] = 'IDLE', 990000, 'JUSTID'",
    ),
    "each step of a sweep begins at the first entry": ("'(' .. rows[STEP][1] or ''", "'' or ''"),
    "a pause does not stop claims": ("if seen.paused and not ends_pause(base, call) then", "if false then"),
    "an expired job runs": ("if not text and not late then", "if not text then"),
    "a failure is not counted": (
        "  redis.call('HINCRBY', key, 'failures', 1)\n  local location = delay",
        "  local location = delay",
    ),
    "a retried job keeps its number of failures": ("'HDEL', key, 'failures', 'stalls',", "'HDEL', key, 'stalls',"),
    "a revoked run can be retried or released": (
        "  if code == 'c' then return code, payload, option end",
        "  if true then return code, payload, option end",
    ),
    "the mark of a revoked job stays after its end": (
        "  if seen.revoking then in_chunks('SREM', base .. ':revoking', nil, ids) end",
        "",
    ),
    "an update recreates a deleted record": (
        "    redis.call('UNLINK', key)\n    return 'missing'",
        "    return 'missing'",
    ),
    "the events of two calls have the same numbers": (
        "seq = digits(call.now), digits(total - n)",
        "seq = digits(call.now), digits(total)",
    ),
    "a completed job has no event": (
        "  local line = events.line(call.lines, 'completed')\n  line[#line + 1] = id\n",
        "",
    ),
    "a waiting client stays registered after the reply": (
        "  in_chunks('HDEL', base .. ':waiters', nil, ids)\n  for state, list",
        "  for state, list",
    ),
    "the log of a removed job stays": ("  if logs then unlink_all", "  if false then unlink_all"),
    "a generated id can equal a custom one": (
        "if not (skips and is_used(id)) then",
        "if true then",
    ),
    "no idle worker becomes the timer if there is none": (
        "if (holder and holder == consumer) or",
        "if holder == consumer or",
    ),
    "a renewal hides an outage": ("gap or tonumber(known[3] or nil)", "gap"),
    "the end of an outage is not recorded": (
        "'seen_at', now, 'settled_since', since, 'away', away)",
        "'seen_at', now)",
    ),
    "a reclaimed job wakes no idle worker": (
        "'returned', call.seen), position, id)\n  call.startable = call.startable + 1",
        "'returned', call.seen), position, id)",
    ),
    "an add wakes no idle worker": (
        "  call.startable = n\n",
        "  call.startable = 0\n",
    ),
    "no timer is set while the queue is paused": (
        "  if call.full then return nil end\n",
        "  if seen.paused or call.full then return nil end\n",
    ),
    "a resumed queue wakes no idle worker": (
        "  if not pauses then call.startable = locations.ready_count(base) end\n",
        "",
    ),
    "the worker of a removed run is not notified": (
        "if state == 'active' then notify_run(base, id, entry) end",
        "",
    ),
    "a claim omits progress that was set before the run": (
        "local reader = touched and read.h or (whats",
        "local reader = (whats",
    ),
    "the time of creation is lost": (
        "redis.call('HSETNX', base .. ':job:' .. id, 'added'",
        "redis.call('HGET', base .. ':job:' .. id, 'added'",
    ),
    "jobs of equal priority start in reverse order": (
        "  return priority .. (size < 10 and '.0' or '.') .. digits(size)\n",
        "  return priority .. '.' .. digits(9e15 - number)\n",
    ),
    "a prioritized job with a longer number overtakes others": (
        "  return priority .. (size < 10 and '.0' or '.') .. digits(size)\n",
        "  return priority\n",
    ),
    "a prioritized job with a record loses its number": (
        "score, entry = prioritized.score(string.sub(route, 3), number), number .. ':'",
        "score, entry = prioritized.score(string.sub(route, 3), number), ''",
    ),
    "LIFO jobs start in the order of their adds": (
        "redis.call('ZREVRANGE', key, '0', digits(count - 1))",
        "redis.call('ZRANGE', key, '0', digits(count - 1))",
    ),
    "every claim begins with the prioritized jobs": (
        "  if not seen.returned or is_unfinished(slots, call, out) then\n",
        (
            "  if seen.prioritized then take_from('prioritized', base, consumer, slots, call, out) end\n"
            "  if out.n < slots then\n"
        ),
    ),
    "every claim begins with the same source of jobs": ("for i = last, last + 2 do", "for i = 0, 2 do"),
    "a job with a changed priority stays in its old location": (
        "if state ~= 'delayed' and state ~= 'waiting-children' then entry = locations.leave(base, id, call) end",
        "if state ~= 'delayed' and state ~= 'waiting-children' then entry = select(2, record.location(base, id)) end",
    ),
    "a keyed job that is delayed keeps its position": ("  parsed.sequence = '0'\n", ""),
    "a promoted retry still blocks its key": (
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)\n  keyed.wake_up(base, id, call)",
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)",
    ),
    "a due retry still blocks its key": ("  keyed.wake_up(base, id, call)\n  if not kept[1]", "  if not kept[1]"),
    "the end of a run does not start the next job of its key": (
        "      keyed.touch(call, key)\n      counts[key] = 0\n",
        "      counts[key] = 0\n",
    ),
    "a reclaimed job keeps the slot of its key": (
        "  locations.give_up(base, row, call)\n  if active",
        "  runs.drop(base, row)\n  limits.freed(1, call)\n  if active",
    ),
    "the jobs of a closed worker keep the slots of their keys": (
        "      locations.give_up(base, row, call)\n      if id",
        "      runs.drop(base, row)\n      limits.freed(1, call)\n      if id",
    ),
    "a job that cannot start keeps the slot of its key": (
        "    keyed.release(base, {key}, call)\n    keyed.refund(base, id, key, call)",
        "    keyed.refund(base, id, key, call)",
    ),
    "the end of a removed run does not free the slot of its key": (
        "  if key ~= '' then keyed.release(base, {key}, call) end\n  limits.freed(1, call)",
        "  limits.freed(1, call)",
    ),
    "the slot of a removed run is free immediately": (
        "  if string.sub(entry, 1, 1) == 'k' then return true end\n  return call.seen.limits",
        "  if true then return false end\n  return call.seen.limits",
    ),
    "a removed run does not count under the queue's limit": (
        " + redis.call('ZCARD', base .. ':stopping')\n",
        "\n",
    ),
    "the outcome of a removed run frees no slot": (
        "    stopping.finish(base, args[3], {(select(3, run_at(args, i)))}, call)\n",
        "",
    ),
    "a worker can end the removed run of another worker": (
        "    if holder and holder == consumer then\n      forget",
        "    if holder then\n      forget",
    ),
    "the lease of a removed run is not renewed": (
        "  if lost[1] then stopping.renew(base, args[1], lost, clock.now()) end\n",
        "",
    ),
    "the lease of a removed run never expires": (" or counted(call.now - due[i + 1] + lock) >= lock then", " then"),
    "an outage counts against a removed run": (
        "or counted(call.now - due[i + 1] + lock) >= lock then",
        "or true then",
    ),
    "a keyed job that is released loses its position": ("  if route.sequence ~= '0' then return false end\n", ""),
    "later jobs of a key overtake one that waits for its retry": (
        "return limits_now.concurrency == 1 and",
        "return false and",
    ),
    "a retry blocks a key with a concurrency above one": (
        "return limits_now.concurrency == 1 and seen.resting",
        "return seen.resting",
    ),
    "a pause of a key has no effect": ("  if call.seen.pauses then pause", "  if false then pause"),
    "a start stays in the window 1 ms too long": ("digits(now - length))\n", "digits(now - length - 1))\n"),
    "a lowered window waits for only one start to leave it": (
        "local at = -max - ahead",
        "local at = -started - ahead",
    ),
    "a bucket never refills": (" + math.floor(math.max(0, now - at) * bucket.refill / 1000)", ""),
    "a job needs one token more than its cost": (
        "left, number = left - cost, number + 1",
        "left, number = left - cost - 1, number + 1",
    ),
    "a job whose cost exceeds the capacity never starts": (
        "return math.min(cost, bucket.capacity) - tokens",
        "return cost - tokens",
    ),
    "a claim forgets what a bucket has paid": (
        "      limits.set_tokens(base .. ':keybucket:' .. key, bucket, left, call, is_new)\n",
        "",
    ),
    "a key with limits counts only the jobs of the last claim as running": (
        "= count, key, digits(count), at + 2",
        "= count, key, digits(taken), at + 2",
    ),
    "the end of a run starts no job of a key that ran as many as it may": (
        "      if count >= most or left < 0 then",
        "      if left < 0 then",
    ),
    "a key that waits for its window or its bucket is not noted": ("  note_sleeping(base, sleeping, call)\n", ""),
    "a key that can start more jobs leaves the index": (
        "elseif taken < room then",
        "elseif false then",
    ),
    "the limits of a key with limits of its own are not read": (
        "own == 1 and read(base, key, known.common) or known.default",
        "known.default",
    ),
    "a changed default limit starts no waiting jobs": ("    if route then keyed.touch(call, route.key) end\n", ""),
    "a changed limit of a key starts no waiting jobs": ("  if key ~= '' then keyed.touch(call, key) end\n", ""),
    "a rate-limited key is never checked again": (
        "    for _, key in ipairs(keys) do keyed.touch(call, key) end\n    if #keys < KEYS_A_STEP",
        "    if #keys < KEYS_A_STEP",
    ),
    "the limit of the queue ignores the runs outside of the stream": (
        "local running = runs.count(base) + redis",
        "local running = entries.pending_count(base .. ':fifo') + redis",
    ),
    "the gate does not stop claims": ("  if gate > call.now then", "  if false then"),
    "a rate-limited keyed job stops the whole queue": (
        "if route then keyed.pause(base, route.key, at, call) else",
        "if false then keyed.pause(base, route.key, at, call) else",
    ),
    "the window of the queue counts no starts": (
        "  if length then limits.note_starts(base, base .. ':rate', n, math.max(tonumber(length), KEPT_MS), call, true) end\n",
        "",
    ),
    "no timer is set for the window of the queue": (
        "  if open_at and locations.ready_count(base) > 0 then return open_at end\n",
        "",
    ),
    "no timer is set for a rate-limited key": ("  if awake and (not due or awake < due) then due = awake end\n", ""),
    "an ended job keeps its deduplication id": (
        "      elseif owner == id then\n        redis.call('UNLINK', base .. ':dedup:' .. d)\n",
        "      elseif owner == id then\n",
    ),
    "the end of a former owner frees the deduplication id": (
        "      elseif owner == id then\n",
        "      elseif owner then\n",
    ),
    "deduplication lasts 1 ms too long": (
        "(ends ~= 0 and ends <= now)",
        "(ends ~= 0 and ends < now)",
    ),
    "the end of a job does not start its successor": (
        "  if successor and dedup.start_next(base, successor, call) then",
        "  if false then",
    ),
    "a retry starts the successor of the job": (
        "  redis.call('HINCRBY', key, 'failures', 1)\n  local location = delay",
        (
            "  redis.call('HINCRBY', key, 'failures', 1)\n  record.forget_marks(base, {id}, call)\n  local location = delay"
        ),
    ),
    "an owner gets a second successor": (
        "if next_state and can_take(base, successor, next_state, call) then",
        "if false then",
    ),
    "a keep_last add does not store its data": (
        "redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data)\n",
        "",
    ),
    "the end of the job ends its throttle window": (
        "  if wanted.mode == 'throttle' then\n    if state",
        "  if false then\n    if state",
    ),
    "a debounced add replaces a running job": (
        "return nil, not record.has_started(base, owner) and owner or nil",
        "return nil, owner",
    ),
    "a refused add removes the job that it would replace": (
        "  if status then return status, id end\n  if owner then removal.remove(base, owner, 'replaced', call) end",
        "  if owner then removal.remove(base, owner, 'replaced', call) end\n  if status then return status, id end",
    ),
    "a dead letter that fails again is moved again": ("    if job[4] then return end\n", ""),
    "an abandoned job is revoked although others wait": (
        "  if rest[1] then\n    redis.call('HSET', base .. ':waiters', id, table.concat(rest, ' '))\n    return",
        "  if false then\n    return",
    ),
    "a revoked job is moved to the dead-letter queue": ("if not target or cause == 'revoked' or", "if not target or"),
    "a job that the server fails is not moved": ("  dead_letters.move(base, id, cause, said or cause, call)\n", ""),
    "a full outbox accepts more entries": (
        "    return seen.outbox and redis.call('XLEN', base .. ':outbox') >= MOST\n",
        "",
    ),
    "two workers relay at the same time": ("    return name ~= holder and till > now", "    return false"),
    "a relay reads the last entry of its previous step again": (
        "last == '' and '-' or '(' .. last, '+'",
        "last == '' and '-' or last, '+'",
    ),
    "a repeated delivery adds a second job": (
        "elseif not known[i] then\n        id, status = add.one",
        "else\n        id, status = add.one",
    ),
    "the mark of a dead letter stays after its end": (
        "  if seen.moved then in_chunks('ZREM', base .. ':moved', nil, ids) end\n",
        "",
    ),
    "an active dead letter is deleted": (
        "if state and state ~= 'active' then\n        removal",
        "if state then\n        removal",
    ),
    "a replay restarts a job that has failed again since its move": ("~= job.failed_at then", "== nil then"),
    "a replay visits skipped jobs again": ("      if verdict == 'skip' then skip = skip + 1 end\n", ""),
    "a replayed job keeps its cause": ("'result', 'reason', 'cause', 'error'", "'result', 'reason', 'error'"),
    "draining always removes delayed jobs": (
        "at, bound, before, position = delayed == '1' and 1 or 2",
        "at, bound, before, position = 1",
    ),
    "draining reports only the jobs of its last step": (
        "    local total = before + step.removed\n",
        "    local total = step.removed\n",
    ),
    "a drained job stays in the line of its key": (
        "  function leaving.keyed(base, id, step) keyed.leave(base, id, step) end\n",
        "",
    ),
    "draining leaves released jobs": (
        "    {walk_zset, 'keyed'}, {walk_zset, 'returned'}}",
        "    {walk_zset, 'keyed'}}",
    ),
    "cleaning removes younger jobs": (
        "'ZRANGEBYSCORE', base .. ':' .. state, '-inf', bound",
        "'ZRANGEBYSCORE', base .. ':' .. state, '-inf', '+inf'",
    ),
    "cleaning exceeds its limit": ("    step.left = math.min(step.left, tonumber(left))\n", ""),
    "cleaning removes waiting jobs of any age": ("    if added and added > bound then return 'stay' end\n", ""),
    "cleaning of waiting jobs exceeds its limit": ("    step.most = left\n", ""),
    "cleaning reads entries that workers have claimed": (
        "      if at == '' or entries.before(at, delivered) then at = delivered end\n",
        "      if at == '' then at = delivered end\n",
    ),
    "promoting starts jobs that were delayed after it began": (
        "        if string.sub(member, 1, 16) > bound then\n",
        "        if string.sub(member, 1, 16) > '9' then\n",
    ),
    "promoting visits skipped jobs again": (
        "left) .. ' ' .. position_at(key, skip, false) or '', promoted}",
        "left) .. ' ' or '', promoted}",
    ),
    "promoting starts jobs that follow another one": (
        "'-inf', '(' .. digits(successors.NEVER), 'LIMIT', skip, n",
        "'-inf', '+inf', 'LIMIT', skip, n",
    ),
    "promoting exceeds its limit": ("      local n = math.min(wanted, left - promoted)\n", "      local n = wanted\n"),
    "retrying exceeds its limit": ("      local n = math.min(wanted, left - retried)\n", "      local n = wanted\n"),
    "retrying begins with the oldest jobs": (
        "redis.call('ZREVRANGE', key, digits(passed)",
        "redis.call('ZRANGE', key, digits(passed)",
    ),
    "a time to live lasts 1 ms too long": ("tonumber(until_ms) > clock.now()", "tonumber(until_ms) >= clock.now()"),
    "a result without its time to live still expires": (
        "  redis.call('ZREM', base .. ':held', id)\n  redis.call('HDEL', base .. ':waiters', id)\n  redis.call('HDEL', key",
        "  redis.call('HDEL', base .. ':waiters', id)\n  redis.call('HDEL', key",
    ),
    "a job that the server fails has no time to live": (
        "  if ttl and ttl >= 1 then return ' t' .. digits(ttl) end\n",
        "",
    ),
    "an expired result can be read": (
        "    elseif FINAL[state] and finish.is_over(base, id) then\n",
        "    elseif false then\n",
    ),
    "a retried job keeps its time to live": (
        "'progress', 'progress_at', 'drop', 'group'",
        "'progress', 'progress_at', 'group'",
    ),
    "a fire time fires twice": (
        " or next_of(base, firing.id) ~= firing.seen then",
        " then",
    ),
    "a changed scheduler fires by its old schedule": (
        "elseif not firing.fire_times or stored.rev ~= firing.rev or",
        "elseif not firing.fire_times or not stored.rev or",
    ),
    "a scheduler fires before its fire time": (
        "    return last <= now and fire_times or nil\n",
        "    return fire_times\n",
    ),
    "a fire time does not wait for the end of the last job": (
        "    if wait and fired > before then\n      wait_for(base, id, last_job, call)\n      next_fire = nil\n",
        "    if wait and fired > before then\n      next_fire = call.now + wait\n",
    ),
    "a scheduler adds a job while its last one runs": ("(busy or has_not_ended(base, last_job))", "busy"),
    "a scheduler exceeds its limit": ("      if limit and fired >= limit then break end\n", ""),
    "a scheduler that reached its limit continues": (
        "local over = not next_fire or (limit and fired >= limit)",
        "local over = not next_fire",
    ),
    "an upsert overwrites a firing that it has not seen": (
        "~= rev or (stored_next or '') ~= seen_next then",
        "~= rev then",
    ),
    "a removed scheduler keeps its history": (
        "    redis.call('UNLINK', key_of(base, id))\n    if removed",
        "    if removed",
    ),
    "the role of a dead process is never free": (" or now > tonumber(by) + LATE_MS or", " or"),
    "a skipped fire time has no event": (
        "        events.note(call.lines, 'skipped', id, fire_time .. ' ' .. status)\n",
        "",
    ),
    **MUTANTS_OF_COMPACT_JOBS,
    **MUTANTS_OF_DIRECT_CLAIMS,
    **MUTANTS_OF_PUSHES,
    **MUTANTS_OF_RUNS,
    **MUTANTS_OF_SIGNALS,
    **MUTANTS_OF_STREAMS,
    **MUTANTS_OF_WAITERS,
    **MUTANTS_OF_STEPS,
    "a delayed job has no flag": ("queue_flags.create(base, 'scheduled', call.seen)", "base .. ':scheduled'"),
    "a ready key has no flag": ("queue_flags.create(base, 'ready', seen)", "base .. ':ready'"),
    "a held record has no flag": ("local key = queue_flags.create(base, 'held', seen)", "local key = base .. ':held'"),
    "a client that asks later has no flag": ("queue_flags.create(base, 'waiters', seen)", "base .. ':waiters'"),
    "a limit of the queue has no flag": (
        "set(base, queue_flags.create(base, 'limits', call.seen), named",
        "set(base, base .. ':limits', named",
    ),
    "a flag replaces the others": ("features = features .. letter", "features = letter"),
    "a sweep removes a flag that is needed": (
        "    if found[name] then letters = letters .. letter_of(name) end\n",
        "    if found[name] and name ~= 'lifo' then letters = letters .. letter_of(name) end\n",
    ),
}
