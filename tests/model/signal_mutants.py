"""Ways to break suspended jobs and signals, each one statement. The random model must detect each of them."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_SIGNALS: Final[dict[str, tuple[str, str]]] = {
    "a signal does not resume the job that waits for it": (
        "  local resumes = state == 'suspended' and waits and contains(names_in(waits), name)\n",
        "  local resumes = false\n",
    ),
    "any signal resumes a job": (
        "  local resumes = state == 'suspended' and waits and contains(names_in(waits), name)\n",
        "  local resumes = state == 'suspended' and waits\n",
    ),
    "a suspension does not look at the mailbox": (
        "  local given, values = take(base, id, names_in(waits), most, call), hand_over_of",
        "  local given, values = {}, hand_over_of",
    ),
    "a job that takes one signal gets all": (
        "      local list = #taken < most and contains",
        "      local list = contains",
    ),
    "a run gets the signals of an earlier run again": (
        "    redis.call('HDEL', base .. ':signalled', 'w' .. id)\n",
        "",
    ),
    "signals that a run gives back are lost": ("  if unused == 'r' then give_back(base, id, call) end\n", ""),
    "every suspension gives the signals back": ("  if unused == 'r' then give_back(", "  if true then give_back("),
    "signals that a run gives back come last": (
        "    redis.call('LPUSH', key, got[i])\n",
        "    redis.call('RPUSH', key, got[i])\n",
    ),
    "signals that a run gives back are not counted": (
        "  if #got > 2 then note_counts(base, id, number, bytes, call.seen) end\n",
        "",
    ),
    "a timeout lasts 1 ms too long": ("math.min(call.now + timeout, NEVER)", "math.min(call.now + timeout + 1, NEVER)"),
    "a job that has ended keeps its mailbox": (
        "  if seen.signalled then record.forget_signals(base, ids) end    -- see signals.lua\n",
        "",
    ),
    "a job without a record keeps its mailbox": (
        "  if call.seen.signalled then record.forget_signals(base, {id}) end\n",
        "",
    ),
    "a mailbox has no flag": (
        "  redis.call('HSET', queue_flags.create(base, 'signalled', seen), 'm' .. id,",
        "  redis.call('HSET', base .. ':signalled', 'm' .. id,",
    ),
    "a signal that was received stays in the mailbox": (
        "  if status == 'ok' then signals.remove(base, id, args[9], call.seen) end\n",
        "",
    ),
    "a signal that is gone is received": (
        "  if not signals.has(base, id, args[9], call.seen) then return 'gone' end\n",
        "",
    ),
    "a run gets an expired signal": (
        "    if name and (expires == '0' or tonumber(expires) > call.now) then\n",
        "    if name then\n",
    ),
    "a full mailbox takes more signals": (
        "    if number >= MOST or bytes + #signal > MOST_BYTES then return nil end\n",
        "",
    ),
    "a claim omits the signals of the job": (
        "      if handed then bytes = bytes + put_hand_over(out, handed[i]) end\n",
        "",
    ),
    "no timer is set for a timeout": (
        "  if deadline and deadline < (due or clock.NEVER) then due = deadline end\n",
        "",
    ),
    "a revoked job stays suspended": ("  redis.call('ZREM', base .. ':suspended', id)\n", ""),
    "a suspension forgets the step": ("  if step == '' then step = values[2] end\n", ""),
    "the reason of a revoked run is stored as its error": (
        "  if code ~= 'f' and code ~= 'r' then payload = '' end    -- it is not an error\n",
        "",
    ),
}
