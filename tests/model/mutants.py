"""Ways to break the library, each one statement. The machine has to notice every one of them."""

from __future__ import annotations

from typing import Final

MUTANTS: Final[dict[str, tuple[str, str]]] = {
    "a settle is not fenced": ("if acknowledged == n or not settle.fenced then", "if true then"),
    "a run settles twice in a batch": (" or settled[entry] then", " then"),
    "an update is not fenced": (
        "if entry ~= '' and settle.fenced and place ~= 'active ' .. entry then",
        "if false then",
    ),
    "a settled entry is not deleted": (
        "  in_chunks('XDEL', stream, nil, raw)\n  return acknowledged",
        "  return acknowledged",
    ),
    "a dropped entry is not acknowledged": (
        "  if #gone > 0 then entries.drop(entries.stream_of(base, batch.entries[1]), gone) end\n",
        "",
    ),
    "a swept entry is not deleted": (
        "  places.give_up(base, stream, raw, call)\n  if active",
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
    "an older call is accepted": ("if tonumber(last) > tonumber(number) then", "if false then"),
    "a repeated claim forgets its jobs": (
        "request.remember(base, args[1], args[2], {refused, claimed, due})",
        "request.remember(base, args[1], args[2], {refused, {}, due})",
    ),
    "one job too many is kept": (
        "ordinary(base, key, now, seen) - count",
        "ordinary(base, key, now, seen) - count - 1",
    ),
    "one job too few is kept": ("ordinary(base, key, now, seen) - count", "ordinary(base, key, now, seen) - count + 1"),
    "a held record is trimmed": ("  if seen.held then", "  if false then"),
    "a held record stays for ever": (
        "redis.call('HEXISTS', base .. ':job:' .. id, 'drop') == 1 and record.place(base, id)",
        "false",
    ),
    "what comes back loses its order": (
        "redis.call('ZADD', base .. ':returned', position, id)",
        "redis.call('ZADD', base .. ':returned', -position, id)",
    ),
    "the order is lost at the second return": ("if order then text = text .. ' ' .. order end", ""),
    "what came back waits in the line": (
        "  if seen.returned then bytes",
        "  if seen.returned and not seen.lifo then bytes",
    ),
    "the fence stands still": ("string.match(before, '^%d+') + 1", "string.match(before, '^%d+') + 0"),
    "a stall too many is allowed": ("stalls > max_stalled", "stalls > max_stalled + 1"),
    "an outage counts as a stall": ("math.min(row[3], grace)", "row[3]"),
    "a renewed lease is no younger": (
        "    command[#command + 1] = 'JUSTID'",
        "    command[#command + 1] = 'IDLE'\n    command[#command + 1] = 990000\n    command[#command + 1] = 'JUSTID'",
    ),
    "the sweep loses its cursor": ("'(' .. rows[STEP][1] or ''", "'' or ''"),
    "a pause does not stop claims": ("  if seen.paused then return {}, ", "  if false then return {}, "),
    "an expired job runs": ("local job = not late and start(", "local job = start("),
    "a failure is not counted": (
        "  redis.call('HINCRBY', key, 'failures', 1)\n  local place = delay",
        "  local place = delay",
    ),
    "a retried job keeps its failures": ("'HDEL', key, 'failures', 'stalls'", "'HDEL', key, 'stalls'"),
    "a revoked job comes back": (
        "  if verb == 'c' then return verb, option end",
        "  if true then return verb, option end",
    ),
    "a revocation outlives the job": (
        "  if seen.revoking then in_chunks('SREM', base .. ':revoking', nil, ids) end",
        "",
    ),
    "a deleted record is made anew": (
        "  redis.call('UNLINK', key)\n  return 'missing'",
        "  return 'missing'",
    ),
    "events overlap": ("'seq', total - n,", "'seq', total,"),
    "a final event is missing": ("  events.note(call.lines, 'completed', id)\n", ""),
    "a waiter stays after the answer": ("      redis.call('HDEL', key, id)\n      answer(", "      answer("),
    "logs outlive the job": ("if redis.call('HEXISTS', base .. ':meta', 'logs') == 1 then", "if false then"),
    "a custom id is overwritten": (
        "if not (numeric and numeric[id]) and not exists(",
        "if true or not exists(",
    ),
    "a timer is left to nobody": ("if (holder and holder == consumer) or", "if holder == consumer or"),
    "a renewal hides an outage": ("gap or tonumber(known[3] or nil)", "gap"),
    "the end of an outage is not noted": ("'seen_at', now, 'settled_since', since)", "'seen_at', now)"),
    "what stalled wakes nobody": (
        "  call.seen.returned = true\n  call.startable = call.startable + 1",
        "  call.seen.returned = true",
    ),
    "what was added wakes nobody": (
        "    call.startable = call.startable + 1\n  end\n  events.note(call.lines, 'added'",
        "  end\n  events.note(call.lines, 'added'",
    ),
    "a resumed queue wakes nobody": ("  if paused == '0' then call.startable = places.ready_count(base) end\n", ""),
    "a removed run goes on": ("if state == 'active' then tell_run(base, entry, 'x ' .. entry) end", ""),
    "early progress is lost": (
        "local what = not call.seen.touched and (whats and whats[i] or batch.what) or 'h'",
        "local what = whats and whats[i] or batch.what or 'h'",
    ),
    "the time of creation is lost": (
        "redis.call('HSETNX', base .. ':job:' .. id, 'added'",
        "redis.call('HGET', base .. ':job:' .. id, 'added'",
    ),
    "equal priorities lose their order": (
        "local sequence = order.text(order.next(base, call))\n  redis.call('ZADD', base .. ':prioritized'",
        "local sequence = order.text(1e15 - order.next(base, call))\n  redis.call('ZADD', base .. ':prioritized'",
    ),
    "the last in is the last out": (
        "redis.call('ZPOPMAX', base .. ':lifo', count)",
        "redis.call('ZPOPMIN', base .. ':lifo', count)",
    ),
    "priorities come before the other lines": (
        "  if #out < slots and bytes < MAX_BYTES then\n    if seen.lifo",
        "  if seen.prioritized then bytes = take_from('prioritized', base, consumer, slots, bytes, call, out) end\n  if #out < slots and bytes < MAX_BYTES then\n    if seen.lifo",
    ),
    "the same line is always first": ("for i = last, last + 2 do", "for i = 0, 2 do"),
    "a job of another priority stays in its line": (
        "if state ~= 'delayed' then entry = places.leave(base, id, call) end",
        "if state ~= 'delayed' then entry = select(2, record.place(base, id)) end",
    ),
    "a keyed job that is put off keeps its place": ("  parsed.sequence = 0\n", ""),
    "a promoted job goes on resting": (
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)\n  keyed.wake_up(base, id, call)",
        "  redis.call('ZREM', base .. ':scheduled', entry .. id)",
    ),
    "a due job goes on resting": ("  keyed.wake_up(base, id, call)\n  if not kept[1]", "  if not kept[1]"),
    "the end of a run does not look at its key": (
        "  redis.call('SREM', base .. ':keyrun:' .. key, id)\n  keyed.touch(call, key)",
        "  redis.call('SREM', base .. ':keyrun:' .. key, id)",
    ),
    "a stalled job holds its key": (
        "  places.give_up(base, stream, raw, call)\n  if active",
        "  entries.drop(stream, {raw})\n  limits.freed(1, call)\n  if active",
    ),
    "a closed worker holds its keys": (
        "local id, entry = places.give_up(base, stream, row[1], call)",
        (
            "local id, _, entry = entries.find(stream, row[1])\n      entries.drop(stream, {row[1]})\n"
            "      limits.freed(1, call)"
        ),
    ),
    "a refused job holds its key": (
        "    keyed.release(base, id, key, call)\n    keyed.refund(base, id, key, call)",
        "    keyed.refund(base, id, key, call)",
    ),
    "a removed run holds its key": (
        "  local stream, raw = entries.stream_of(base, entry)\n  places.give_up(base, stream, raw, call)",
        "  local stream, raw = entries.stream_of(base, entry)\n  entries.drop(stream, {raw})\n  limits.freed(1, call)",
    ),
    "a keyed job that comes back loses its place": ("  if route.sequence ~= 0 then return false end\n", ""),
    "later jobs pass one that rests": ("if left > 0 and concurrency == 1 and", "if false and"),
    "a resting job holds a wider key": ("concurrency == 1 and call.seen.resting", "call.seen.resting"),
    "a pause holds nothing": ("  if call.seen.pauses then at", "  if false then at"),
    "a start stays in the window": ("digits(now - length))", "digits(now - length - 1))"),
    "one start must leave a lowered window": (
        "redis.call('ZRANGE', key, started - max, started - max, 'WITHSCORES')",
        "redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')",
    ),
    "a bucket stays empty": (" + math.floor((now - kept[2]) * bucket.refill / 1000)", ""),
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
        "  if length then limits.note_starts(base, base .. ':rate', n, tonumber(length), call) end\n",
        "",
    ),
    "nobody's alarm is set for a limit": (
        "  if call.open_at and places.ready_count(base) > 0 then return call.open_at end\n",
        "",
    ),
    "nobody's alarm is set for a key": ("  if awake and (not due or awake < due) then due = awake end\n", ""),
    "an owner that ends keeps its id": (
        "      if kept and string.match(kept, '^%d+ (.*)$') == id then redis.call('UNLINK', key) end\n",
        "",
    ),
    "the end of any owner frees the id": ("if kept and string.match(kept, '^%d+ (.*)$') == id then", "if kept then"),
    "deduplication lasts an instant too long": (
        "if ends ~= 0 and ends <= now then",
        "if ends ~= 0 and ends < now then",
    ),
    "throttling ends with the job": (
        "  if wanted.mode == 'throttle' then\n    if state",
        "  if false then\n    if state",
    ),
    "a running job is replaced": ("return nil, not has_started(base, owner) and owner or nil", "return nil, owner"),
    "an add that is refused replaces": (
        "  if word then return word, id end\n  if owner then removal.remove(base, owner, 'replaced', call) end",
        "  if owner then removal.remove(base, owner, 'replaced', call) end\n  if word then return word, id end",
    ),
}

RARE: Final = frozenset(
    {
        "a timer is left to nobody",
        "early progress is lost",
        "a promoted job goes on resting",
        "a removed run holds its key",
        "a removed run goes on",
        "what was added wakes nobody",
        "one start must leave a lowered window",
        "a common limit is not looked at",
        "a running job is replaced",
        "deduplication lasts an instant too long",
        "the end of any owner frees the id",
        "a resumed queue wakes nobody",
        "a held record is trimmed",
        "logs outlive the job",
    }
)
"""Those that take many steps to notice."""
