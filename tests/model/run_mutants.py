"""Small defects of runs outside of the stream in the Lua, as pairs of texts."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_RUNS: Final[dict[str, tuple[str, str]]] = {
    "a group ends the runs of any lease": (
        "  local valid = found == #members\n",
        "  local valid = true\n",
    ),
    "a run is found without its job": (
        "  local elsewhere = ids[1] and runs.remove(base, ids, tokens, of_keys) or 0\n",
        "  local elsewhere = #ids\n",
    ),
    "a renewal is not stored": (
        "  runs.note_renewals(base, renewed, received, now)\n  return renewed\n",
        "  return renewed\n",
    ),
    "a renewal does not say that the worker has named the run": (
        "local flat, mark = {}, digits(now) .. (received and ' r' or '')\n",
        "local flat, mark = {}, digits(now)\n",
    ),
    "a worker renews runs that it does not hold": (
        "    if named[token] then renewed[#renewed + 1] = token end\n",
        "    renewed[#renewed + 1] = token\n",
    ),
    "a renewal is read as the claim": (
        "    local idle = now - (since or string.match(row[1], '^.(%d+)'))\n",
        "    local idle = now - string.match(row[1], '^.(%d+)')\n",
    ),
    "an ended run keeps its renewal": (
        "  in_chunks('HDEL', base .. ':renewed', nil, tokens)\n  return",
        "  return",
    ),
    "a completed run keeps its renewal": ("  if seen.renewed then\n", "  if false then\n"),
    "an outage counts as a stall of a run outside of the stream": (
        "      local idle = lease.counted(row[3], outage)\n      if idle >= shortest then\n",
        "      local idle = row[3]\n      if idle >= shortest then\n",
    ),
    "a sweep ends with the runs of the first worker": (
        "    from = is_last and digits(worker + 1) .. ' 0' or",
        "    from = is_last and '' or",
    ),
    "a sweep looks at one run of each worker": (
        "  return rows, tonumber(found), tonumber(passed), #members - dropped, is_last\n",
        "  return {rows[1]}, tonumber(found), tonumber(passed), #members - dropped, true\n",
    ),
    "two workers have the same number": (
        "    number = digits(redis.call('HINCRBY', base .. ':meta2', 'consumers', '1'))\n",
        "    number = '1'\n",
    ),
    "a closed worker keeps its runs": (
        ", runs.rows_of_worker(base, consumer, STEP, call.now)\n",
        ", {}\n",
    ),
}

DEFECTS_OF_RUNS: Final[dict[str, tuple[str, str]]] = {
    "the end of lost leases releases their keys": (
        "  if elsewhere < #ids then keys = runs.held_keys(base, ids, tokens, of_keys, elsewhere) end\n",
        "",
    ),
    "a run whose job has lost its record is not found": (
        "  return member and select(3, runs.parts_of(member))\n",
        "  return nil\n",
    ),
    "a key of a run whose job has lost its record stays busy": (
        "  for _, key in ipairs(lost) do held[#held + 1] = key end\n",
        "",
    ),
    "a sweep passes over the run behind one that it has ended": (
        "digits(passed + read - ended)\n",
        "digits(passed + read)\n",
    ),
    "an interrupted sweep passes over the run behind one that it has ended": (
        "digits(passed + row.at - ended) end\n",
        "digits(passed + row.at) end\n",
    ),
    "an interrupted sweep passes over the run behind a member that was written by hand": (
        "members[i], i - dropped\n",
        "members[i], i\n",
    ),
    "the number of a worker is forgotten while it has runs": (
        "#pending(base .. ':fifo', '-', consumer) == 0 and runs.count_of(base, consumer) == 0 then\n",
        "#pending(base .. ':fifo', '-', consumer) == 0 then\n",
    ),
    "a sweep returns no run of an earlier build": (
        "  local is_mended = return_old_runs(base, call, call_budget)\n",
        "  local is_mended = true\n",
    ),
    "a returned run of an earlier build keeps its key": (
        "      if key then keyed.release(base, {key}, call) end\n      limits.freed(1, call)\n    end\n",
        "      limits.freed(1, call)\n    end\n",
    ),
    "a verified call ends a run of another worker": (
        "    if holder and holder ~= consumer then members[i] = '0-0' end\n",
        "",
    ),
    "compact jobs that start together have no events": (
        "    line[noted + i], at = id, at + 2\n",
        "    at = at + 2\n",
    ),
    "compact jobs that start together have a wrong lease": (
        "' ' .. digits(call.now) .. ' ' .. digits(lock)\n  local started",
        "' ' .. digits(call.now) .. ' 99999999'\n  local started",
    ),
    "compact jobs with a lease of their own start with others": (
        "  if not lines or call.seen.own_leases then",
        "  if not lines then",
    ),
    "the reply to a repeated claim names one of the jobs that started together": (
        "  return RS .. head .. SEP .. names\n",
        "  return RS .. head .. SEP .. string.match(names, '^%d+')\n",
    ),
    "returned jobs of a claim start in any order": (
        "  return digits(RUNS + seq)\n",
        "  return digits(RUNS + (7 * seq) % 4000)\n",
    ),
    "a lease that began in the future goes on": ("  mend_instants(base, rows, now)\n", ""),
}
"""Defects that random steps seldom show. tests/conformance/test_run_defects.py plays a scenario with each of them."""
