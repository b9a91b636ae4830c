"""The verdict on queues: whether their work is done in time, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from glidemq_async.ops.alerts.episodes import AlertEpisode
from glidemq_async.ops.queue_rows import QueueSummary

Verdict: TypeAlias = Literal["ok", "behind", "failing", "stopped"]
BEHIND_SECONDS: Final = 60.0
"""Age in seconds of the oldest ready job above which a queue is behind."""
FAILING_RATIO: Final = 0.1
"""Share of failures among the jobs of the last hour above which a queue is failing."""
FEW_FAILURES: Final = 5
"""Number of failures below which a queue is never failing."""


def judge(queues: Sequence[QueueSummary], alerts: Sequence[AlertEpisode] = ()) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on queues with these open episodes of alerts, and its reasons in words."""
    found: dict[Verdict, list[str]] = {"stopped": [], "failing": [], "behind": []}
    for episode in alerts:
        found[episode.verdict].append(f"alert {episode.rule}: {episode.text}")
    for queue in queues:
        for verdict, reason in _findings(queue):
            found[verdict].append(reason)
    for verdict, reasons in found.items():
        if reasons:
            return verdict, tuple(each for list_of in found.values() for each in list_of)
    return "ok", ()


def _findings(queue: QueueSummary) -> Iterable[tuple[Verdict, str]]:
    age, ready = queue.oldest_waiting_seconds or 0.0, queue.ready
    if queue.is_dead_letter:
        return
    if ready and queue.paused is not None:
        yield "behind", f"{queue.name} is paused with {_jobs(ready)} waiting"
    elif ready and not queue.workers and age > BEHIND_SECONDS / 2:
        yield "stopped", f"{queue.name} has {_jobs(ready)} waiting and no worker"
    elif ready and age > BEHIND_SECONDS:
        yield "behind", f"the oldest job of {queue.name} has waited {spoken(age)}{_outlook(queue)}"
    if queue.failed_last_hour >= FEW_FAILURES and queue.failure_ratio > FAILING_RATIO:
        yield "failing", f"{queue.failure_ratio:.0%} of the jobs of {queue.name} failed in the last hour"
    if queue.late_schedule_seconds is not None:
        yield "behind", f"a schedule of {queue.name} is {spoken(queue.late_schedule_seconds)} late"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _outlook(queue: QueueSummary) -> str:
    if queue.in_rate is not None and queue.in_rate > queue.out_rate > 0:
        return f", and jobs arrive faster ({queue.in_rate:.1f}/s) than they end ({queue.out_rate:.1f}/s)"
    if queue.backlog_seconds:
        return f", and the backlog ends in about {spoken(queue.backlog_seconds)}"
    return ""


def spoken(seconds: float) -> str:
    """Return a duration for people, such as `4 min`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
