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
        "  open_call = nil\n  local kept, unbroken",
        "  local kept, unbroken",
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
    "a direct claim stores no lease": (
        "  if jobs.n > 0 then push.note_lease(base, call.shortest, call) end\n  if begun.missed",
        "  if begun.missed",
    ),
}
