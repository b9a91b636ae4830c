"""Ways to break the library, each one statement. The machine has to notice every one of them."""

from __future__ import annotations

from typing import Final

MUTANTS: Final[dict[str, tuple[str, str]]] = {
    "a settle is not fenced": (
        "if release_entries(base, args, n, call) or not settle.fenced then",
        "if release_entries(base, args, n, call) or true then",
    ),
    "a run settles twice in a batch": (" or settled[entry] then", " then"),
    "an update is not fenced": (
        "if entry ~= '' and settle.fenced then",
        "if false then",
    ),
    "a settled entry is not deleted": (
        "  entries.delete_acknowledged(base .. ':lane', active, not valid or call.seen.lane_lost)\n",
        "",
    ),
    "a settle deletes the entries of older runs": (
        "    if rows[1] then return rows[1][1] end\n",
        "",
    ),
    "a dropped entry is not acknowledged": (
        "  if #gone > 0 then entries.drop(entries.stream_of(base, batch.entries[1]), gone) end\n",
        "",
    ),
    "a swept entry is not deleted": (
        "  locations.give_up(base, stream, raw, call)\n  if active",
        (
            "  local _, key = entries.find(stream, raw)\n  if key then keyed.release(base, id, key, call) end\n"
            "  limits.freed(1, call)\n  if active"
        ),
    ),
    "a due job stays scheduled": ("    if #due > 0 then in_chunks('ZREM', key, nil, due) end\n", ""),
    "a promoted job stays scheduled": ("  redis.call('ZREM', base .. ':scheduled', entry .. id)\n", ""),
    "a delayed job is early": (
        "scheduled.push(base, id, call.now + delay, call)\n  local route",
        "scheduled.push(base, id, call.now + delay - 1, call)\n  local route",
    ),
    "a repeated call happens again": ("if last == number then return", "if false then return"),
    "an older call is accepted": ("if ahead < 0 then", "if false then"),
    "a repeated claim forgets its jobs": (
        "request.remember(base, args[1], args[2], {refused, claimed, due, not unbroken or nil},",
        "request.remember(base, args[1], args[2], {refused, {}, due, not unbroken or nil},",
    ),
    "one job too many is kept": (
        "ordinary(base, key, now, seen) - count",
        "ordinary(base, key, now, seen) - count - 1",
    ),
    "one job too few is kept": ("ordinary(base, key, now, seen) - count", "ordinary(base, key, now, seen) - count + 1"),
    "a held record is trimmed": ("  if seen.held then\n    local free", "  if false then\n    local free"),
    "a receipt of one channel ends the hold for all": ("    if rest and #rest > 0 then\n", "    if false then\n"),
    "a receipt ends no hold": ("      received[#received + 1] = id\n", ""),
    "a receipt ends a time to live": ("    if not (received and drop == 't') then\n", "    if true then\n"),
    "a retried job is still waited for": (
        "redis.call('ZREM', base .. ':held', id) == 1 then redis.call('HDEL', base .. ':waiters', id) end",
        "redis.call('ZREM', base .. ':held', id) == 1 then do end end",
    ),
    "what comes back loses its order": (
        "redis.call('ZADD', base .. ':returned', position, id)",
        "redis.call('ZADD', base .. ':returned', -position, id)",
    ),
    "the order is lost at the second return": ("if order then claimed = claimed .. ' ' .. order end", ""),
    "what came back waits in the line": (
        "  if seen.returned then bytes",
        "  if seen.returned and not seen.lifo then bytes",
    ),
    "the fence stands still": ("string.match(before, '^%d+') + 1", "string.match(before, '^%d+') + 0"),
    "a stall too many is allowed": ("stalls > max_stalled", "stalls > max_stalled + 1"),
    "an outage counts as a stall": ("lease.counted(row[3], outage)", "row[3]"),
    "a paused scheduler is started by an upsert": (
        "    if redis.call('HEXISTS', key, 'paused') == 1 then score = ENDED end\n",
        "",
    ),
    "a renewed lease is no younger": (
        "    command[n + 1] = 'JUSTID'",
        "    command[n + 1], command[n + 2], command[n + 3] = 'IDLE', 990000, 'JUSTID'",
    ),
    "the sweep loses its cursor": ("'(' .. rows[STEP][1] or ''", "'' or ''"),
    "a pause does not stop claims": ("  if seen.paused then return {n = 0}, ", "  if false then return {n = 0}, "),
    "an expired job runs": ("local size = not late and start(", "local size = start("),
    "a failure is not counted": (
        "  redis.call('HINCRBY', key, 'failures', 1)\n  local location = delay",
        "  local location = delay",
    ),
    "a retried job keeps its failures": ("'HDEL', key, 'failures', 'stalls',", "'HDEL', key, 'stalls',"),
    "a revoked job comes back": (
        "  if code == 'c' then return code, option end",
        "  if true then return code, option end",
    ),
    "a revocation outlives the job": (
        "  if seen.revoking then in_chunks('SREM', base .. ':revoking', nil, ids) end",
        "",
    ),
    "a deleted record is made anew": (
        "  redis.call('UNLINK', key)\n  return 'missing'",
        "  return 'missing'",
    ),
    "events overlap": ("'seq', digits(total - n),", "'seq', digits(total),"),
    "a final event is missing": (
        "  local line = events.line(call.lines, 'completed')\n  line[#line + 1] = id\n",
        "",
    ),
    "a waiter stays after the answer": (
        "  in_chunks('HDEL', base .. ':waiters', nil, ids)\n  for state, list",
        "  for state, list",
    ),
    "logs outlive the job": ("if redis.call('HEXISTS', base .. ':meta', 'logs') == 1 then", "if false then"),
    "a custom id is overwritten": (
        "if not (numeric and numeric[id]) and not exists(",
        "if true or not exists(",
    ),
    "a timer is left to nobody": ("if (holder and holder == consumer) or", "if holder == consumer or"),
    "a renewal hides an outage": ("gap or tonumber(known[3] or nil)", "gap"),
    "the end of an outage is not noted": (
        "'seen_at', now, 'settled_since', since, 'away', away)",
        "'seen_at', now)",
    ),
    "what stalled wakes nobody": (
        "  call.seen.returned = true\n  call.startable = call.startable + 1",
        "  call.seen.returned = true",
    ),
    "what was added wakes nobody": (
        "    call.startable = call.startable + 1\n  end\n  events.note(call.lines, 'added'",
        "  end\n  events.note(call.lines, 'added'",
    ),
    "nobody's alarm is set in a pause": (
        "  if call.full then return nil end\n",
        "  if seen.paused or call.full then return nil end\n",
    ),
    "a resumed queue wakes nobody": ("  if paused == '0' then call.startable = locations.ready_count(base) end\n", ""),
    "a removed run goes on": ("if state == 'active' then notify_run(base, entry, 'x ' .. entry) end", ""),
    "early progress is lost": (
        "local reader = touched and read.h or (whats",
        "local reader = (whats",
    ),
    "the time of creation is lost": (
        "redis.call('HSETNX', base .. ':job:' .. id, 'added'",
        "redis.call('HGET', base .. ':job:' .. id, 'added'",
    ),
    "equal priorities lose their order": (
        "local sequence = order.next(base, call)\n  redis.call('ZADD', base .. ':prioritized'",
        "local sequence = digits(9e15 - order.next(base, call))\n  redis.call('ZADD', base .. ':prioritized'",
    ),
    "the last in is the last out": (
        "redis.call('ZPOPMAX', base .. ':lifo', count)",
        "redis.call('ZPOPMIN', base .. ':lifo', count)",
    ),
    "priorities come before the other lines": (
        "  if out.n < slots and bytes < MAX_BYTES then\n    if seen.lifo",
        "  if seen.prioritized then bytes = take_from('prioritized', base, consumer, slots, bytes, call, out) end\n  if out.n < slots and bytes < MAX_BYTES then\n    if seen.lifo",
    ),
    "the same line is always first": ("for i = last, last + 2 do", "for i = 0, 2 do"),
    "a job of another priority stays in its line": (
        "if state ~= 'delayed' then entry = locations.leave(base, id, call) end",
        "if state ~= 'delayed' then entry = select(2, record.location(base, id)) end",
    ),
    "a keyed job that is put off keeps its place": ("  parsed.sequence = '0'\n", ""),
    "a promoted job goes on resting": (
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)\n  keyed.wake_up(base, id, call)",
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)",
    ),
    "a due job goes on resting": ("  keyed.wake_up(base, id, call)\n  if not kept[1]", "  if not kept[1]"),
    "the end of a run does not look at its key": (
        "      keyed.touch(call, key)\n      released[key] = true\n",
        "      released[key] = true\n",
    ),
    "a stalled job holds its key": (
        "  locations.give_up(base, stream, raw, call)\n  if active",
        "  entries.drop(stream, {raw})\n  limits.freed(1, call)\n  if active",
    ),
    "a closed worker holds its keys": (
        "local id, entry = locations.give_up(base, stream, row[1], call)",
        (
            "local id, _, entry = entries.find(stream, row[1])\n      entries.drop(stream, {row[1]})\n"
            "      limits.freed(1, call)"
        ),
    ),
    "a refused job holds its key": (
        "    keyed.release(base, {key}, call)\n    keyed.refund(base, id, key, call)",
        "    keyed.refund(base, id, key, call)",
    ),
    "a removed run holds its key": (
        "  if key ~= '' then keyed.release(base, {key}, call) end\n  limits.freed(1, call)",
        "  limits.freed(1, call)",
    ),
    "the slot of a removed run is free immediately": (
        "  if string.sub(entry, 1, 1) == 'k' then return true end\n  return call.seen.limits",
        "  if true then return false end\n  return call.seen.limits",
    ),
    "a removed run does not count under the queue's limit": (" - redis.call('ZCARD', base .. ':stopping'))", ")"),
    "the outcome of a removed run frees nothing": (
        "    stopping.finish(base, args[3], {(select(3, run_at(args, i)))}, call)\n",
        "",
    ),
    "any worker ends a removed run": (
        "    if holder and holder == consumer then\n      forget",
        "    if holder then\n      forget",
    ),
    "a removed run is not renewed": ("  if lost[1] then stopping.renew(base, args[1], lost, clock.now()) end\n", ""),
    "a removed run never expires": (" or counted(call.now - due[i + 1] + lock) >= lock then", " then"),
    "an outage counts against a removed run": (
        "or counted(call.now - due[i + 1] + lock) >= lock then",
        "or true then",
    ),
    "a keyed job that comes back loses its place": ("  if route.sequence ~= '0' then return false end\n", ""),
    "later jobs pass one that rests": ("if left > 0 and concurrency == 1 and", "if false and"),
    "a resting job holds a wider key": ("concurrency == 1 and call.seen.resting", "call.seen.resting"),
    "a pause holds nothing": ("  if call.seen.pauses then at", "  if false then at"),
    "a start stays in the window": ("digits(now - length))\n", "digits(now - length - 1))\n"),
    "one start must leave a lowered window": (
        "local at = -max - ahead",
        "local at = -started - ahead",
    ),
    "a bucket stays empty": (" + math.floor(math.max(0, now - kept[2]) * bucket.refill / 1000)", ""),
    "a job pays too much": ("tokens_in(key, bucket, now) - cost", "tokens_in(key, bucket, now) - cost - 1"),
    "a dear job waits for a larger bucket": ("math.min(cost, bucket.capacity) - tokens_in", "cost - tokens_in"),
    "own limits hide the common ones": ("    if not own[2] then own[2], own[3] = common[2], common[3] end\n", ""),
    "a common limit is not looked at": ("    if route then keyed.touch(call, route.key) end\n", ""),
    "a limit of a key is not looked at": ("  if key ~= '' then keyed.touch(call, key) end\n", ""),
    "a key sleeps on": (
        "  for _, key in ipairs(keys) do keyed.touch(call, key) end\n  return #keys == KEYS_A_STEP",
        "  return #keys == KEYS_A_STEP",
    ),
    "runs in the lane are not counted": (
        "entries.pending_count(base .. ':stream') + entries.pending_count(base .. ':lane')\n    local left",
        "entries.pending_count(base .. ':stream')\n    local left",
    ),
    "the gate stays open": ("  if gate > call.now then", "  if false then"),
    "a limited key closes the gate": (
        "if route then keyed.pause(base, route.key, at, call) else",
        "if false then keyed.pause(base, route.key, at, call) else",
    ),
    "starts of the queue are not counted": (
        "  if length then limits.note_starts(base, base .. ':rate', n, math.max(tonumber(length), KEPT_MS), call) end\n",
        "",
    ),
    "nobody's alarm is set for a limit": (
        "  if open_at and locations.ready_count(base) > 0 then return open_at end\n",
        "",
    ),
    "nobody's alarm is set for a key": ("  if awake and (not due or awake < due) then due = awake end\n", ""),
    "an owner that ends keeps its id": (
        "      elseif owner == id then\n        redis.call('UNLINK', base .. ':dedup:' .. d)\n",
        "      elseif owner == id then\n",
    ),
    "the end of any owner frees the id": ("      elseif owner == id then\n", "      elseif owner then\n"),
    "deduplication lasts an instant too long": (
        "(ends ~= 0 and ends <= now)",
        "(ends ~= 0 and ends < now)",
    ),
    "a successor never starts": ("  if successor and dedup.start_next(base, successor, call) then", "  if false then"),
    "a successor starts with a retry": (
        "  redis.call('HINCRBY', key, 'failures', 1)\n  local location = delay",
        (
            "  redis.call('HINCRBY', key, 'failures', 1)\n  record.forget_marks(base, {id}, call)\n  local location = delay"
        ),
    ),
    "a second successor is made": (
        "if next_state and can_take(base, successor, next_state, call) then",
        "if false then",
    ),
    "the last data are lost": ("redis.call('HSET', base .. ':job:' .. id, 'name', name, 'data', data)\n", ""),
    "throttling ends with the job": (
        "  if wanted.mode == 'throttle' then\n    if state",
        "  if false then\n    if state",
    ),
    "a running job is replaced": (
        "return nil, not record.has_started(base, owner) and owner or nil",
        "return nil, owner",
    ),
    "an add that is refused replaces": (
        "  if status then return status, id end\n  if owner then removal.remove(base, owner, 'replaced', call) end",
        "  if owner then removal.remove(base, owner, 'replaced', call) end\n  if status then return status, id end",
    ),
    "what was moved here moves on": ("    if job[5] then return end\n", ""),
    "what was revoked is a dead letter": ("if not target or cause == 'revoked' or", "if not target or"),
    "a job that the server fails is not moved": ("  dead_letters.move(base, id, cause, cause, call)\n", ""),
    "a full outbox takes more": ("    return seen.outbox and redis.call('XLEN', base .. ':outbox') >= MOST\n", ""),
    "two relay at once": ("return name ~= holder and till > now", "return false"),
    "a step of the outbox comes again": ("last == '' and '-' or '(' .. last, '+'", "last == '' and '-' or last, '+'"),
    "what is delivered again is added again": (
        "if not known[i] then id, status = add.one",
        "if true then id, status = add.one",
    ),
    "the end leaves the mark of a moved job": (
        "  if seen.moved then in_chunks('ZREM', base .. ':moved', nil, ids) end\n",
        "",
    ),
    "a letter that is worked on is deleted": (
        "if state and state ~= 'active' then\n        removal",
        "if state then\n        removal",
    ),
    "another failure than the moved one starts again": ("~= job.failed_at then", "== nil then"),
    "replaying does not pass over": ("      if verdict == 'skip' then skip = skip + 1 end\n", ""),
    "a replayed job keeps its cause": ("'result', 'reason', 'cause', 'error'", "'result', 'reason', 'error'"),
    "draining takes the delayed as well": (
        "at, bound, before, position = delayed == '1' and 1 or 2",
        "at, bound, before, position = 1",
    ),
    "draining counts from its last step": (
        "    local total = before + step.removed\n",
        "    local total = step.removed\n",
    ),
    "a drained job stays in its key's line": (
        "  function leaving.keyed(base, id, step) keyed.leave(base, id, step) end\n",
        "",
    ),
    "draining forgets what returned": (
        "    {walk_zset, 'keyed'}, {walk_zset, 'returned'}}",
        "    {walk_zset, 'keyed'}}",
    ),
    "cleaning takes what is younger": (
        "'ZRANGEBYSCORE', base .. ':' .. state, '-inf', bound",
        "'ZRANGEBYSCORE', base .. ':' .. state, '-inf', '+inf'",
    ),
    "cleaning forgets its limit": ("    step.left = math.min(step.left, tonumber(left))\n", ""),
    "waiting jobs are cleaned whatever their age": ("    if added and added > bound then return 'stay' end\n", ""),
    "cleaning of waiting jobs forgets its limit": ("    step.most = left\n", ""),
    "cleaning reads entries that workers have claimed": (
        "      if at == '' or entries.before(at, delivered) then at = delivered end\n",
        "      if at == '' then at = delivered end\n",
    ),
    "promoting takes jobs that were delayed later": (
        "        if string.sub(member, 1, 16) > bound then\n",
        "        if string.sub(member, 1, 16) > '9' then\n",
    ),
    "promoting forgets what it passed over": (
        "left) .. ' ' .. position_at(key, skip, false) or '', promoted}",
        "left) .. ' ' or '', promoted}",
    ),
    "promoting starts jobs that follow another one": (
        "'-inf', '(' .. digits(successors.NEVER), 'LIMIT', skip, n",
        "'-inf', '+inf', 'LIMIT', skip, n",
    ),
    "promoting forgets its limit": ("      local n = math.min(wanted, left - promoted)\n", "      local n = wanted\n"),
    "retrying forgets its limit": ("      local n = math.min(wanted, left - retried)\n", "      local n = wanted\n"),
    "the oldest are retried first": (
        "redis.call('ZREVRANGE', key, digits(passed)",
        "redis.call('ZRANGE', key, digits(passed)",
    ),
    "policies count a result that has a time to live": (
        "  return redis.call('ZCOUNT', key, '-inf', now) -",
        "  return redis.call('ZCARD', key) -",
    ),
    "a time to live is an instant too long": ("tonumber(until_ms) > clock.now()", "tonumber(until_ms) >= clock.now()"),
    "what had a time to live is still held": (
        "  redis.call('ZREM', base .. ':held', id)\n  redis.call('HDEL', base .. ':waiters', id)\n  redis.call('HDEL', key",
        "  redis.call('HDEL', base .. ':waiters', id)\n  redis.call('HDEL', key",
    ),
    "what the server fails has no time to live": (
        "  if ttl and ttl >= 1 then return ' t' .. digits(ttl) end\n",
        "",
    ),
    "a result that is over is read": ("    if finish.is_over(base, id) then return {'missing'} end\n", ""),
    "a time to live goes on after a retry": ("'error', 'progress', 'drop')", "'error', 'progress')"),
    "a slot fires twice": (
        " or next_of(base, firing.id) ~= firing.seen then",
        " then",
    ),
    "a scheduler that was changed fires as before": (
        "elseif not firing.fire_times or stored.rev ~= firing.rev or",
        "elseif not firing.fire_times or not stored.rev or",
    ),
    "a fire time fires before its time": ("    return last <= now and fire_times or nil\n", "    return fire_times\n"),
    "the end of a job sets no fire time": ("        dedup.reschedule(base, string.sub(d, 2), id, call)\n", ""),
    "a fire time does not wait for the end of the last job": (
        "    if wait and fired > before then\n      wait_for(base, id, last_job, call)\n      next_fire = nil\n",
        "    if wait and fired > before then\n      next_fire = call.now + wait\n",
    ),
    "jobs of a scheduler overlap": ("(busy or has_not_ended(base, last_job))", "busy"),
    "a triggered job overlaps": ("alone and has_not_ended(base, stored.triggered)", "false"),
    "a scheduler goes beyond its limit": ("      if limit and fired >= limit then break end\n", ""),
    "a limit does not end a scheduler": (
        "local over = not next_fire or (limit and fired >= limit)",
        "local over = not next_fire",
    ),
    "an upsert is not compared": ("~= rev or (stored_next or '') ~= seen_next then", "~= rev then"),
    "a removed scheduler keeps its history": (
        "    redis.call('UNLINK', key_of(base, id))\n    if removed",
        "    if removed",
    ),
    "a process holds both roles": (
        "      if found[3] == process then redis.call('HDEL', timer, 'second', 'second_by') end\n",
        "",
    ),
    "the role of a dead process stays": (" or now > tonumber(by) + LATE_MS or", " or"),
    "what was skipped is not told": (
        "        events.note(call.lines, 'skipped', id, fire_time .. ' ' .. status)\n",
        "",
    ),
}

RARE: Final = frozenset(
    {
        "a timer is left to nobody",
        "early progress is lost",
        "a promoted job goes on resting",
        "a removed run holds its key",
        "a removed run goes on",
        "the slot of a removed run is free immediately",
        "a removed run does not count under the queue's limit",
        "the outcome of a removed run frees nothing",
        "any worker ends a removed run",
        "a removed run is not renewed",
        "a removed run never expires",
        "an outage counts against a removed run",
        "what was added wakes nobody",
        "one start must leave a lowered window",
        "a common limit is not looked at",
        "a running job is replaced",
        "deduplication lasts an instant too long",
        "the end of any owner frees the id",
        "a resumed queue wakes nobody",
        "a held record is trimmed",
        "logs outlive the job",
        "a closed worker holds its keys",
        "a start stays in the window",
        "a letter that is worked on is deleted",
        "another failure than the moved one starts again",
        "a renewal hides an outage",
        "a scheduler goes beyond its limit",
        "a limit of a key is not looked at",
        "a resting job holds a wider key",
        "what stalled wakes nobody",
        "equal priorities lose their order",
        "two relay at once",
        "a removed scheduler keeps its history",
        "a fire time fires before its time",
        "a dear job waits for a larger bucket",
        "what had a time to live is still held",
        "a pause does not stop claims",
        "a deleted record is made anew",
        "one job too many is kept",
        "cleaning takes what is younger",
        "cleaning forgets its limit",
        "promoting starts jobs that follow another one",
        "a successor never starts",
        "a receipt ends a time to live",
        "promoting takes jobs that were delayed later",
        "a full outbox takes more",
        "cleaning reads entries that workers have claimed",
        "an outage counts as a stall",
        "the oldest are retried first",
        "retrying forgets its limit",
        "nobody's alarm is set for a limit",
    }
)
"""Those that take many steps to notice."""
