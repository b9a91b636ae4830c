"""Ways to break what plain jobs have outside of their entries: clients that wait, and times to live."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_WAITERS: Final[dict[str, tuple[str, str]]] = {
    "retention removes the outcome of a plain job that a client still waits for": (
        "      if ended then passed[#passed + 1], passed[#passed + 2], given = ended, numbers[i], given + 1 end\n",
        "",
    ),
    "a held job that retention has passed is in no structure": (
        "  in_chunks('ZADD', base .. ':completed', nil, seen.passed)\n",
        "",
    ),
    "the outcome of an awaited plain job is not held": (
        "  finish.await_receipts(base, waited, call.now, call.seen)\n",
        "",
    ),
    "a usual outcome does not reach its client": (
        "  if seen.waiters then notify_of(base, args, group, from, to, done, call) end\n",
        "",
    ),
    "a plain job whose retention keeps nothing is not held": (" or (listening and count == 0) then", " then"),
    "a plain job starts after its time to live": (
        "      if expired and expired[plain.id_of(row[1])] then\n",
        "      if false then\n",
    ),
    "a plain job that started can still expire": (
        "  local expired = expired_plain(base, rows, has_record, call)\n",
        "  local expired = nil\n",
    ),
    "a plain job that waits too long does not expire": (
        "  if state ~= 'waiting' then return false end\n",
        "  if true then return false end\n",
    ),
    "a long run keeps the outcomes of its neighbours": (
        "  group.took_long = count ~= 0 and age >= 0 and call.now - group.started > age * completing.LONG_RUN\n",
        "",
    ),
    "one plain job forgets its client": (
        "  if channel then marks.note_waiter(base, id, channel, call) end\n",
        "",
    ),
    "one awaited job that is pushed can still expire": (
        "  local is_pushed = start(",
        "  if ttl then marks.note_expiry(base, id, ttl, call) end local is_pushed = start(",
    ),
    "a plain job forgets its client": ("    if extra then note_marks(base, id, extra, call) end\n", ""),
}
