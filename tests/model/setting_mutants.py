"""Ways to break the explanations, the settings, the holds and `max_waiting`, each one statement."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_EXPLANATIONS: Final[dict[str, tuple[str, str]]] = {
    "an explanation omits the pause of the queue": (
        "    if ends == true or (ends and ends > call.now) then\n      local who",
        "    if false then\n      local who",
    ),
    "an explanation omits a stop by a handler": (
        "if set[4] and tonumber(set[4]) > call.now then gate(",
        "if false then gate(",
    ),
    "an explanation omits the window of the queue": (
        "if left == 0 then gate(gates, 'window'",
        "if false then gate(gates, 'window'",
    ),
    "an explanation omits the concurrency of the queue": (
        "if left == 0 then gate(gates, 'queue-limit'",
        "if false then gate(gates, 'queue-limit'",
    ),
    "an explanation omits the pause of a key": ("if pause and pause > call.now then gate(", "if false then gate("),
    "an explanation omits the running jobs of a key": (
        "if keyed.room(base, key, limits_now, running, call) <= 0 then explain_busy",
        "if false then explain_busy",
    ),
    "an explanation omits the window of a key": ("    if window and window > call.now then\n", "    if false then\n"),
    "an explanation omits the bucket of a key": ("if bucket and bucket > call.now then gate(", "if false then gate("),
    "an explanation takes the waiting job itself for the one that rests": (
        "      if rest ~= id then return rest end\n",
        "      if rest == id then return rest end\n",
    ),
    "an explanation starts expired jobs": (
        "    if late then return gate(gates, 'expired'",
        "    if false then return gate(gates, 'expired'",
    ),
    "an explanation stops at an expired job outside of fifo": (
        "if not id or not is_expired(base, id, call) then return id end",
        "if true then return id end",
    ),
    "an explanation stops at an expired job in fifo": (
        "if not is_over and not is_expired(base, id, call) then return id end",
        "if not is_over then return id end",
    ),
    "an explanation visits each key once": ("        keys[#keys + 1], rank[key] = key, at + 1\n", ""),
    "an explanation stays at the first job of a key": (
        "keys[#keys + 1], rank[key] = key, at + 1",
        "keys[#keys + 1], rank[key] = key, at",
    ),
    "an explanation starts a job that the bucket cannot pay": (
        "if id and (at == 0 or can_pay(base, key, id, call)) then",
        "if id then",
    ),
    "an explanation takes the cost of an expired job": (
        "      if not is_expired(base, id, call) then break end\n    end\n    return cost and",
        "      break\n    end\n    return cost and",
    ),
}

MUTANTS_OF_SETTINGS: Final[dict[str, tuple[str, str]]] = {
    "a declaration ends a hold": (
        "return redis.call('HEXISTS', key, 'o' .. name) == 0 and value or nil",
        "return value",
    ),
    "a missing declaration removes a limit that the code has not set": (
        "if redis.call('HDEL', key, 'c' .. name) == 0 then return nil end",
        "redis.call('HDEL', key, 'c' .. name)",
    ),
    "a declaration is not stored": ("redis.call('HSET', key, 'c' .. name, cmsgpack.pack({value, by.who, now}))", ""),
    "a released hold stays": (
        "    redis.call('HDEL', key, 'o' .. name)\n    return declared(base, name) or ''\n",
        "    return declared(base, name) or ''\n",
    ),
    "a released hold forgets the declared value": ("return declared(base, name) or ''", "return ''"),
    "a direct call does not hold over a declaration": ("    if declared(base, name) then\n", "    if false then\n"),
    "a hold loses its note": (
        "cmsgpack.pack({value, who, now, note}))",
        "cmsgpack.pack({value, who, now, ''}))",
    ),
    "a hold has no effect on the limit": (
        "    hold(base, name, value, by.who, by.note, now)\n    return value\n",
        "    hold(base, name, value, by.who, by.note, now)\n    return nil\n",
    ),
    "a pause that has ended is still a hold": (
        "    redis.call('HDEL', base .. ':settings', 'o' .. name)\n  else\n",
        "  else\n",
    ),
    "a limit that is removed stays": ("else redis.call('HDEL', key, field) end", "end"),
    "a value that a hold keeps away removes the limit": (
        "ipairs(value and FIELDS[pair[1]] or {}) do",
        "ipairs(FIELDS[pair[1]]) do",
    ),
    "a second pause of a scheduler replaces the first author": (
        "if by or redis.call('HEXISTS', key_of(base, id), 'paused') == 0 then",
        "if true then",
    ),
    "a scheduler that is resumed is still held": (
        "    redis.call('HDEL', key, 'paused')\n    settings.note_hold(base, 'schedule ' .. id, '')\n",
        "    redis.call('HDEL', key, 'paused')\n",
    ),
    "a scheduler that is removed is still held": (
        "    settings.note_hold(base, 'schedule ' .. id, '')\n    settings.declare_schedule(base, id)\n",
        "    settings.declare_schedule(base, id)\n",
    ),
    "a held retention has no effect": (
        "return string.sub(kept, 1, 1) == finish.HELD and kept or policy",
        "return policy",
    ),
    "a held retention stores no job that keeps nothing": (
        "  if count == 0 then count, age = policy_of('completed', policy_in_force('completed', policy, seen)) end\n",
        "",
    ),
    "a held retention lets a job with a record keep nothing": (
        "  local policy = policy_in_force(state, group.policy, seen)\n",
        "  local policy = group.policy\n",
    ),
    "a released retention removes what the jobs keep": (
        "or string.gsub(before, '^' .. finish.HELD, '')\n",
        "or ''\n",
    ),
    "a retention is applied and not noted as a hold": (
        "    settings.note_hold(base, name, policy, by, clock.now())\n",
        "",
    ),
    "a full queue accepts one more job": ("if waiting >= most then fail('FULL'", "if waiting > most then fail('FULL'"),
    "keyed jobs do not count as waiting": ("    + redis.call('ZCARD', base .. ':keyed')\n  if waiting", "  if waiting"),
    "prioritized jobs do not count as waiting": (
        " + redis.call('ZCARD', base .. ':prioritized')\n    + redis.call('ZCARD', base .. ':keyed')",
        " + redis.call('ZCARD', base .. ':keyed')",
    ),
    "LIFO jobs do not count as waiting": (
        "base .. ':lifo') + redis.call('ZCARD', base .. ':prioritized')\n    + redis.call('ZCARD', base .. ':keyed",
        "base .. ':prioritized')\n    + redis.call('ZCARD', base .. ':keyed",
    ),
    "plain jobs do not count as waiting": (
        "  local waiting = locations.fifo_count(base) + redis.call('ZCARD', base .. ':returned')\n",
        "  local waiting = redis.call('ZCARD', base .. ':returned')\n",
    ),
    "returned jobs do not count as waiting": (
        "  local waiting = locations.fifo_count(base) + redis.call('ZCARD', base .. ':returned')\n",
        "  local waiting = locations.fifo_count(base)\n",
    ),
    "an add does not read the limit of waiting jobs": ("bounded and BOUNDED or '1'", "'1'"),
}
