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
        "  in_chunks('XDEL', stream, nil, entries)\n  return acknowledged",
        "  return acknowledged",
    ),
    "a dropped entry is not acknowledged": ("  redis.call('XACK', stream, GROUP, raw)\n", ""),
    "a swept entry is not deleted": (
        "  redis.call('XACK', stream, GROUP, entry)\n  redis.call('XDEL', stream, entry)",
        "  redis.call('XACK', stream, GROUP, entry)",
    ),
    "a due job stays scheduled": ("  in_chunks('ZREM', key, nil, due)\n  return moved", "  return moved"),
    "a promoted job stays scheduled": ("  redis.call('ZREM', base .. ':scheduled', id)", ""),
    "a delayed job is early": (
        "scheduled.push(base, id, now + delay)",
        "scheduled.push(base, id, now + delay - 1)",
    ),
    "a repeated call happens again": ("if last == number then return", "if false then return"),
    "an older call is accepted": ("if tonumber(last) > tonumber(number) then", "if false then"),
    "a repeated claim forgets its jobs": (
        "request.remember(base, args[1], args[2], {refused, claimed, due})",
        "request.remember(base, args[1], args[2], {refused, {}, due})",
    ),
    "one job too many is kept": ("redis.call('ZCARD', key) - count", "redis.call('ZCARD', key) - count - 1"),
    "one job too few is kept": ("redis.call('ZCARD', key) - count", "redis.call('ZCARD', key) - count + 1"),
    "a held record is trimmed": ("  if seen.held then", "  if false then"),
    "a held record stays for ever": (
        "if redis.call('HGET', base .. ':job:' .. id, 'drop') then",
        "if false then",
    ),
    "what comes back loses its order": (
        "redis.call('ZADD', base .. ':returned', order, id)",
        "redis.call('ZADD', base .. ':returned', -order, id)",
    ),
    "the order is lost at the second return": ("if order then text = text .. ' ' .. order end", ""),
    "what came back waits in the line": (
        "ipairs({from_returned, from_stream})",
        "ipairs({from_stream, from_returned})",
    ),
    "the fence stands still": ("string.match(before, '^%d+') + 1", "string.match(before, '^%d+') + 0"),
    "a stall too many is allowed": ("stalls > max_stalled", "stalls > max_stalled + 1"),
    "an outage counts as a stall": ("math.min(row[3], grace)", "row[3]"),
    "a renewed lease is no younger": (
        "    command[#command + 1] = 'JUSTID'",
        "    command[#command + 1] = 'IDLE'\n    command[#command + 1] = 990000\n    command[#command + 1] = 'JUSTID'",
    ),
    "the sweep loses its cursor": ("'(' .. entries[STEP][1] or ''", "'' or ''"),
    "a pause does not stop claims": ("  if seen.paused then return {}, ", "  if false then return {}, "),
    "an expired job runs": ("    if expired and expired[id] then", "    if false then"),
    "a failure is not counted": (
        "  redis.call('HINCRBY', key, 'failures', 1)\n  if delay == '0' then",
        "  if delay == '0' then",
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
    "a final event is missing": ("  events.note(lines, 'completed', id)", ""),
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
        "wakeup.wake(base, #report.recovered + mended)",
        "wakeup.wake(base, mended)",
    ),
    "what was added wakes nobody": ("if not paused then wakeup.wake(base, startable) end", ""),
    "a resumed queue wakes nobody": (
        "    wakeup.wake(base, places.ready_count(base))\n    wakeup.due",
        "    wakeup.due",
    ),
    "a removed run goes on": ("if state == 'active' then stop_run(base, entry) end", ""),
    "early progress is lost": ("call.seen.touched and 'h' or whats[i]", "whats[i]"),
    "the time of creation is lost": (
        "redis.call('HSETNX', base .. ':job:' .. id, 'added'",
        "redis.call('HGET', base .. ':job:' .. id, 'added'",
    ),
}

RARE: Final = frozenset(
    {
        "a timer is left to nobody",
        "a resumed queue wakes nobody",
        "a renewal hides an outage",
        "a held record is trimmed",
        "logs outlive the job",
    }
)
"""Those that take many steps to notice."""
