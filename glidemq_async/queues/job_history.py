"""The history of a job: its runs with their workers, errors and log lines, and the actions of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms
from glidemq_async.functions.calling import Record
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.base import QueuePart
from glidemq_async.stored.names import check_id
from glidemq_async.stored.record import claim_of, place_of, whole

MOST_BYTES: Final = 65_536
_RUN, _END = "a", "e"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of the history of a job.

    `kind` is "attempt" for a run, "event" for an end that the server has decided, and "action" for a change by an
    operator. `at` is the time of the end of a run, or of the entry. Times are measured by the server's clock.

    `started_at` and `ended_at` are the start and the end of a run, `group` is the fingerprint of its failure group.

    - Of a run: `number` is the value of `job.fence`. `worker` and `version` are None if they are unknown. `outcome` is
      "completed", "failed", "retrying", "delayed", "suspended", "waiting-children", "revoked", "stalled", or "active"
      for a run that has not ended. `error` is the text of the error. `log` has the lines that were written during the
      run, with their times.
    - Of an event: `outcome` is the cause of the failure, and `error` its text.
    - Of an action: `actor` is the operator, `outcome` the action, and `note` the reason.
    """

    at: datetime
    kind: Literal["attempt", "event", "action"]
    number: int | None = None
    worker: str | None = None
    version: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str = ""
    error: str | None = None
    group: str | None = None
    log: tuple[tuple[datetime, str], ...] = ()
    actor: str | None = None
    note: str | None = None


class JobHistories(QueuePart[Data, Result]):
    """The methods of Queue for histories of jobs."""

    async def get_job_history(self, job_id: str) -> list[HistoryEntry]:
        """Return the history of a job, the oldest entry first; an empty list for a job that does not exist.

        It has the runs that failed, were delayed, were suspended or lost their lease, the last run, and the actions of
        operators. The oldest entries leave when the history is longer than 8 KiB; see `set_history`. Runs that were
        released or rate-limited have no entry.
        """
        check_id("job_id", job_id)
        await self.connect()
        functions = self._client.functions
        [record] = await functions.reading.get_heads([job_id])
        if b"place" not in record:
            return []
        stored = await functions.job_history.get(job_id)
        entries = [_entry(values) for values in stored.entries]
        last = _last_run(record, stored.consumer, stored.version)
        if last is not None and all(entry.number != last.number for entry in entries):
            entries.append(last)
        entries.sort(key=lambda entry: entry.at)
        lines = await functions.reading.get_timed_logs(job_id)
        return _with_lines(entries, lines)

    async def set_history(self, max_bytes: int) -> None:
        """Set how many bytes of its history each job of the queue keeps, 0 to 65,536 (default: 8,192).

        0 stores no further entries. Raises ValueError for a number out of this range.
        """
        whole_number("max_bytes", max_bytes, least=0)
        if max_bytes > MOST_BYTES:
            raise ValueError(f"max_bytes must be at most {MOST_BYTES}, got {max_bytes}")
        await self.connect()
        await self._client.functions.job_history.set_bytes(max_bytes)


def _entry(values: Sequence[str]) -> HistoryEntry:
    kind, *rest = values
    if kind == _RUN:
        number, started, ended, outcome, worker, version, group, error = rest
        return HistoryEntry(
            from_ms(int(ended)),
            "attempt",
            number=int(number),
            worker=worker or None,
            version=version or None,
            started_at=from_ms(int(started)),
            ended_at=from_ms(int(ended)),
            outcome=outcome,
            error=error or None,
            group=group or None,
        )
    if kind == _END:
        at, cause, text = rest
        return HistoryEntry(from_ms(int(at)), "event", outcome=cause, error=text)
    at, actor, action, note = rest
    return HistoryEntry(from_ms(int(at)), "action", actor=actor, outcome=action, note=note or None)


def _last_run(record: Record, consumer: str, version: str) -> HistoryEntry | None:
    """Return the run that is not stored as an entry: one that completed, or that has not ended."""
    state, claim = place_of(record).state, claim_of(record)
    if claim is None or state not in {"completed", "failed", "active"}:
        return None
    runner, _, of_runner = record.get(b"runner", b"").decode(errors="replace").partition(" ")
    started = from_ms(claim.started)
    if state == "active":
        worker, code = consumer or runner or None, version or of_runner or None
        return HistoryEntry(started, "attempt", claim.fence, worker, code, started, None, "active")
    if state == "failed":  # the server has ended the job while it waited
        return None
    ended = from_ms(whole(record, b"ended"))
    return HistoryEntry(ended, "attempt", claim.fence, runner or None, of_runner or None, started, ended, "completed")


def _with_lines(entries: list[HistoryEntry], lines: list[tuple[int, int, str]]) -> list[HistoryEntry]:
    """Return the entries, each run with the log lines that it has written."""
    of_run: dict[int, list[tuple[datetime, str]]] = {}
    for at, run, line in lines:
        if run:
            of_run.setdefault(run, []).append((from_ms(at), line))
    return [replace(entry, log=tuple(of_run.get(entry.number or 0, ()))) for entry in entries]
