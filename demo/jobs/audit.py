"""The figures of a demonstration, computed from the stored jobs, the events and the ids of acknowledged adds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from glidemq_async import Finding, Job, Queue
from glidemq_async.demo.jobs.event_counts import EventCounts
from glidemq_async.demo.jobs.measure import Measure, SourceFile

DemoJob = Job[SourceFile, Measure]


@dataclass(frozen=True)
class Spread:
    """Two percentiles of durations, in seconds."""

    p50: float
    p99: float


@dataclass(frozen=True)
class Figures:
    """The figures of a demonstration. Durations are seconds by the server's clock."""

    jobs: int
    completed: int
    failed: int
    seconds: float
    rate: float
    latency: Spread
    """Time from the add to the end of the job."""
    run: Spread
    """Time from the start of the last run to its end."""
    retries: int
    stalls: int
    recovered: int
    """Completed jobs with a run that a killed worker did not finish."""
    lost: int
    """Acknowledged jobs that have not ended."""
    duplicates: int
    """Jobs with more than one final event, or in both final states."""
    strangers: int
    """Ended jobs without an acknowledged add."""
    events_missed: int
    """Events that were trimmed before they were read. They may include duplicates."""
    findings: list[Finding]
    results: list[Measure] = field(repr=False)

    @property
    def clean(self) -> bool:
        """True if no guarantee was broken."""
        return not (self.lost or self.duplicates or self.strangers or self.findings)


async def audit(queue: Queue[SourceFile, Measure], acknowledged: Iterable[str], tally: EventCounts) -> Figures:
    """Read all stored jobs and compute the figures. The workers must have ended."""
    completed = [job async for job in queue.iter_jobs("completed")]
    failed = [job async for job in queue.iter_jobs("failed")]
    return compute(completed, failed, set(acknowledged), tally, await queue.check())


def compute(
    completed: Sequence[DemoJob],
    failed: Sequence[DemoJob],
    acknowledged: set[str],
    tally: EventCounts,
    findings: list[Finding],
) -> Figures:
    """Compute the figures from the given jobs and counts."""
    ended = [*completed, *failed]
    final_states = Counter(job.id for job in ended)
    doubled = {job_id for count in (final_states, tally.endings) for job_id, times in count.items() if times > 1}
    seconds = _between(_times(ended, "created_at"), _times(ended, "finished_at"))
    return Figures(
        jobs=len(acknowledged),
        completed=len(completed),
        failed=len(failed),
        seconds=seconds,
        rate=len(final_states) / seconds if seconds else 0.0,
        latency=_spread(_durations(ended, "created_at")),
        run=_spread(_durations(ended, "processed_at")),
        retries=sum(max(0, job.attempts_made - 1) for job in ended),
        stalls=sum(job.stalled_count for job in ended),
        recovered=sum(job.stalled_count > 0 for job in completed),
        lost=len(acknowledged - final_states.keys()),
        duplicates=len(doubled),
        strangers=len(final_states.keys() - acknowledged),
        events_missed=tally.missed,
        findings=findings,
        results=[result for job in completed if (result := job.return_value) is not None],
    )


def _times(jobs: Iterable[DemoJob], field_name: str) -> list[datetime]:
    found = (getattr(job, field_name) for job in jobs)
    return [time for time in found if isinstance(time, datetime)]


def _between(starts: Sequence[datetime], ends: Sequence[datetime]) -> float:
    return (max(ends) - min(starts)).total_seconds() if starts and ends else 0.0


def _durations(jobs: Iterable[DemoJob], since: str) -> list[float]:
    pairs = ((getattr(job, since), job.finished_at) for job in jobs)
    return [(end - start).total_seconds() for start, end in pairs if start and end]


def _spread(durations: Sequence[float]) -> Spread:
    ordered = sorted(durations)
    return Spread(_percentile(ordered, 50), _percentile(ordered, 99))


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least `percent` of the values do not exceed."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else 0.0
