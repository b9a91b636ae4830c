"""Compares the times at which handlers really ran, from the journal, with the intervals of their fencing tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.crash.checker import DELAYED_AGAIN, Violation
from tests.crash.journal import Line
from tests.crash.replay import Lease

#: The server's times are whole milliseconds.
GRAIN_MS = 2.0


@dataclass
class HandlerRun:
    """The run of a handler in monotonic seconds, without an end if its process was killed."""

    job: str
    fence: int
    began: float
    ended: float | None = None


def read_handlers(lines: list[Line]) -> list[HandlerRun]:
    """Return every run of a handler."""
    found: dict[tuple[str, int, int], HandlerRun] = {}
    for line in lines:
        if line.kind in ("start", "end"):
            job, fence = line.words[0], int(line.words[1])
            if line.kind == "start":
                found[job, fence, line.pid] = HandlerRun(job, fence, line.at)
            else:
                found[job, fence, line.pid].ended = line.at
    return list(found.values())


#: Ends that a handler caused itself.
_BY_HANDLER = ("completed", "retrying", "limited", DELAYED_AGAIN)


def stray_runs(handlers: list[HandlerRun], leases: dict[tuple[str, int], Lease], ahead: float) -> Iterator[Violation]:
    """Return handlers that ran outside the interval of their fencing token although their outcome was accepted.

    If there are none, intervals of the server's clock show which handlers really ran concurrently. `ahead`: wall clock
    minus monotonic clock, in seconds.
    """
    for run in handlers:
        lease = leases.get((run.job, run.fence))
        if lease is None:
            yield Violation("fence", run.job, f"ran under claim {run.fence}, which no event reports")
            continue
        if (run.began + ahead) * 1000 < lease.began - GRAIN_MS:
            yield Violation("stray", run.job, f"claim {run.fence} started before its event")
        late = run.ended is not None and (run.ended + ahead) * 1000 > lease.ended + GRAIN_MS
        if late and lease.how in _BY_HANDLER:
            yield Violation("stray", run.job, f"claim {run.fence} was {lease.how} before its handler had ended")


def outlived(run: HandlerRun, leases: dict[tuple[str, int], Lease], ahead: float) -> bool:
    """Return whether a handler continued after its job was reclaimed."""
    lease = leases.get((run.job, run.fence))
    if lease is None or lease.how != "stalled" or run.ended is None:
        return False
    return (run.ended + ahead) * 1000 > lease.ended + GRAIN_MS
