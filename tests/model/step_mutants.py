"""Ways to break the journals of jobs, each one statement. The random model must detect each of them."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_STEPS: Final[dict[str, tuple[str, str]]] = {
    "a step of a run that lost its job is recorded": (
        "    if state ~= 'active' or found ~= entry then return 'stale' end\n    if args[1] ~=",
        "    if args[1] ~=",
    ),
    "a restarted run keeps its journal": (
        "  if call.seen.stepped then journals.remove(base, {id}) end\n  removal.start_anew(base, id, 'retried', call)",
        "  removal.start_anew(base, id, 'retried', call)",
    ),
    "a completed run is accepted": (
        "  if state ~= 'failed' then return 'state ' .. state end\n  journals.add",
        "  journals.add",
    ),
    "a removed job keeps its journal": (
        "  if logs and (not is_known or seen.stepped) then journals.remove(base, ids) end\n",
        "",
    ),
    "a job without a record keeps its journal": (
        "  if call.seen.stepped then journals.remove(base, {id}) end\nend\n",
        "end\n",
    ),
    "a removed journal remains counted": (
        "  if in_chunks('HDEL', base .. ':stepped', nil, ids) == 0 then return end\n",
        "",
    ),
    "the journal of a completed job does not expire": (
        "  redis.call('PEXPIRE', base .. ':steps:' .. id, bytes > MOST_KEPT and LARGE_KEPT_MS or KEPT_MS)\n",
        "",
    ),
    "a completed job that runs again keeps its journal": (
        "  if state == 'completed' then\n    journals.remove(base, {id})\n  else\n",
        "  if state == '' then\n    journals.remove(base, {id})\n  else\n",
    ),
    "a requeued job does not know which steps failed before": (
        "    journals.store_size(base, id, count, bytes, string.match(claim or '0', '^%d+'), seen)\n",
        "",
    ),
    "a journal has no flag": (
        "  redis.call('HSET', queue_flags.create(base, 'stepped', seen), id, text)\n",
        "  redis.call('HSET', base .. ':stepped', id, text)\n",
    ),
    "a step that is recorded twice counts twice": (
        "    if before == 0 then count, bytes = count + 1, bytes + #identity + size else",
        "    if true then count, bytes = count + 1, bytes + #identity + size else",
    ),
}
