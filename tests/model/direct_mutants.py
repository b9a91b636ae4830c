"""Small defects of direct claims in the Lua, as pairs of texts."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_DIRECT_CLAIMS: Final[dict[str, tuple[str, str]]] = {
    "a direct claim passes over released jobs": (
        "local CONCERNS = {'returned', 'lifo', 'ready', 'prioritized', 'limits', 'recorded',",
        "local CONCERNS = {'lifo', 'ready', 'prioritized', 'limits', 'recorded',",
    ),
    "a direct claim exceeds the limits of the queue": (
        "'prioritized', 'limits', 'recorded', 'expiry', 'regrouped'}",
        "'prioritized', 'recorded', 'expiry', 'regrouped'}",
    ),
    "a direct claim starts expired jobs": (
        "'limits', 'recorded', 'expiry', 'regrouped'}",
        "'limits', 'recorded', 'regrouped'}",
    ),
    "a direct claim does not see the records of plain jobs": (
        "'limits', 'recorded', 'expiry', 'regrouped'}",
        "'limits', 'expiry', 'regrouped'}",
    ),
    "a direct claim reads the entries of jobs with a record": (
        "  entries.mark_special(base, tonumber(number), call)\n  return redis.call('XADD'",
        "  return redis.call('XADD'",
    ),
    "a job that sets its lease is claimed directly": (
        "  if entries.is_special(data, opts) then entries.mark_special(base, tonumber(id), call) end\n",
        "",
    ),
    "a mark covers too few entries": (
        "    call.special = number + SPECIAL_AT_ONCE\n    mark(base, call.special)",
        "    call.special = number + SPECIAL_AT_ONCE\n    mark(base, number - 1)",
    ),
    "a repeated direct claim opens the gate again": (
        "  open_call = nil\n  integer('request number'",
        "  integer('request number'",
    ),
    "the gate stays open": ("  redis.call('UNLINK', base .. ':direct')\n", ""),
    "a direct claim has no events": ("    for i = 1, n do line[at + i] = numbers[i] end\n", ""),
    "a direct claim through gaps has the wrong events": (
        "  if last - first + 1 == n then\n    local numbers",
        "  if last - first + 1 >= n then\n    local numbers",
    ),
    "the reply to a repeated direct claim names one job too few": (
        "  return n, {claim_tokens.range(first, last)}",
        "  return n, {claim_tokens.range(first + 1, last)}",
    ),
    "a direct claim registers slots that it has used": (
        "  local due = after_claim(base, caller, n, n == most",
        "  local due = after_claim(base, caller, 0, n == most",
    ),
    "a direct claim of the active stream passes the limits of the queue": (
        "not (seen.lane_lost or seen.limits)",
        "not seen.lane_lost",
    ),
    "a direct claim of the active stream reads the texts of jobs with a record": (
        "    if not line or #line > small then return nil end\n",
        "    lines[i] = line or 'x' .. SEP .. 'x' .. SEP\n",
    ),
    "a direct claim of the active stream has no events": (
        "    raws[i], line[noted + i] = raw, id\n",
        "    raws[i] = raw\n",
    ),
    "the reply to a repeated direct claim of the active stream names one job": (
        "  out.n, out.tokens[#out.tokens + 1] = out.n + n, prefix .. table.concat(raws, ' ' .. prefix)\n",
        "  out.n, out.tokens[#out.tokens + 1] = out.n + n, prefix .. raws[1]\n",
    ),
    "a finished direct claim of the active stream looks unfinished": (
        "    redis.call('HDEL', base .. ':meta2', 'lane_lost')\n    return jobs\n",
        "    return jobs\n",
    ),
    "a direct claim of the active stream stores a wrong lease": (
        "digits(call.now) .. ' ' .. digits(call.lock)\n  local line = events.line(call.lines, 'active')",
        "digits(call.now) .. ' ' .. digits(1)\n  local line = events.line(call.lines, 'active')",
    ),
    "a direct claim stores no lease": (
        "  if jobs.n > 0 then push.note_lease(base, call.shortest, call) end\n  if begun.missed",
        "  if begun.missed",
    ),
}
