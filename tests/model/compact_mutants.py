"""Small defects of compact jobs in the Lua, as pairs of texts."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_COMPACT_JOBS: Final[dict[str, tuple[str, str]]] = {
    "a compact job that gets a record keeps its text": ("  redis.call('HDEL', base .. ':compact', id)\n", ""),
    "a compact job that gets a record keeps its run": ("  redis.call('HDEL', base .. ':compact_runs', id)\n", ""),
    "a group of prioritized jobs loses its priority": (
        "before .. priority .. after",
        "before .. '1' .. after",
    ),
    "only the last new job of a key in a group enters its line": (
        "    if created ~= missing then merge_new(base, keys, lines, texts) end\n",
        "",
    ),
    "only the last job of a key with a line in a group enters it": ("        text = known or text\n", ""),
    "a job behind the text of a line is forgotten": (
        "  return string.sub(text, from), line_rests.take(base, key, rest_of(letter))\n",
        "  return string.sub(text, from), false\n",
    ),
    "a job in the list of a line is forgotten": (
        " or not at and line_rests.from_list(base, key, letter)\n",
        " or false\n",
    ),
    "a full text of a line forgets the next job": (
        "        note_in_list(behind, key, member)\n        return letter == LIST",
        "        return letter == LIST",
    ),
    "a line does not note that jobs are in its list": (
        "        return letter == LIST and text or LIST .. text\n",
        "        return text\n",
    ),
    "keys that a claim keeps are not ready after it": (
        "  note_ready(base, ready, call.seen, true)\nend\n\n-- Take",
        "end\n\n-- Take",
    ),
    "a job of a line with priorities enters at the end": (
        "  if first ~= second then return first < second end\n",
        "",
    ),
    "a removed job remains in the text of its line": (
        "  if left == text then return end\n",
        "  if left then return end\n",
    ),
    "the removal of the last job of a text hides the jobs behind it": (
        "    left = line_rests.take(base, key, rest_of(letter))\n",
        "    left = false\n",
    ),
    "lines of earlier builds are not found": (
        "  return not have_new_lines[base]\n",
        "  return false\n",
    ),
    "the groups of a step have the same numbers": ("      state.k = state.k + some\n", ""),
    "a partial add of groups loses the other jobs": (
        "          if budget.has_added_enough(call_budget) then return n end\n",
        "          if budget.has_added_enough(call_budget) then return total end\n",
    ),
    "a completed compact job seems to run": ("return 'c' .. prefix", "return prefix"),
    "a group completes runs without a lease": (
        "local why = not step.valid and refusal(base, id, token, named)",
        "local why = nil",
    ),
    "a group keeps the keys of its runs": (
        "  if keys and keys[1] then keyed.release_completed(base, keys, call) end\n  return valid",
        "  return valid",
    ),
    "a group releases keys of runs that have ended": (
        "  if keys and not valid then keys = runs.held_keys(base, ids, tokens_in(members), keys, found) end\n",
        "",
    ),
    "the keys of completed runs are not reviewed": (
        "    review_ended(base, ended, call, keeps and not touched)\n",
        "",
    ),
    "compact jobs have no event when they complete": (
        "  for i = 1, #ids do line[at + i] = ids[i] end\n",
        "",
    ),
    "a group of compact jobs ends runs without a lease": ("if group.since and valid and", "if group.since and"),
    "a job with a record ends as a compact job": ("    if made == 0 then", "    if true then"),
    "a job with a record keeps its end as a compact job": (
        "  in_chunks('HDEL', base .. ':compact_runs', nil, others)\n",
        "",
    ),
    "a compact job beside a job with a record is missing": ("made < #ids and compact.has(base, id)", "false"),
    "a failed compact job gets no record": (
        "    if compact.is_run(run, tokens[i]) then compact.open(base, ids[i]) end\n",
        "",
    ),
}
