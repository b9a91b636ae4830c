"""Small defects of compact jobs in the Lua, as pairs of texts."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_COMPACT_JOBS: Final[dict[str, tuple[str, str]]] = {
    "a compact job that gets a record keeps its text": ("  redis.call('HDEL', base .. ':compact', id)\n", ""),
    "a compact job that gets a record keeps its run": ("  redis.call('HDEL', base .. ':compact_runs', id)\n", ""),
    "a completed compact job seems to run": ("return 'c' .. run .. tail", "return run"),
    "a group completes runs without a lease": (
        "local why = not valid and refusal(base, id, token, named)",
        "local why = nil",
    ),
    "a group keeps the keys of its runs": (
        "  if keys and keys[1] then keyed.release(base, keys, call) end\n  return valid",
        "  return valid",
    ),
    "a group releases keys of runs that have ended": (
        "  if keys and not valid then keys = entries.keys_of(lane, raws) end\n",
        "",
    ),
    "compact jobs have no event when they complete": (
        "      line[#line + 1] = id\n      flat[n + 1]",
        "      flat[n + 1]",
    ),
    "a failed compact job gets no record": (
        "    if compact.is_run(run, tokens[i]) then compact.open(base, ids[i]) end\n",
        "",
    ),
}
