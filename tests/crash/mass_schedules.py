"""Masses: thousands of job schedulers with the same fire time, and thousands of jobs that expire at that time.

The clock jumps over the fire times. Workers, which also fire the schedulers, are killed during the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from glidemq_async import JobOptions, Queue
from tests.crash.checker import Violation
from tests.crash.journal import Journal
from tests.crash.queues import shift_clock
from tests.crash.roles import KEEP_ALL, Payload, connect_to, payload, run_loop
from tests.crash.trial import Crew, Evidence, Figures, Trial
from tests.crash.workspace import ServerWorkspace, open_workspace

QUEUE: Final = "mass-schedules"
HOUR: Final = timedelta(hours=1)
SHORT, LONG = HOUR / 2, 4 * HOUR
"""How long jobs may wait. The jobs with the short time have expired after the jump, the others have not."""
AT_ONCE: Final = 50


@dataclass(frozen=True)
class Size:
    """The number of job schedulers, of jobs that expire, and of as many jobs that might; `seconds` bounds the run."""

    schedulers: int = 20_000
    expiring: int = 5_000
    seconds: float = 120.0


@dataclass
class Outcome(Figures):
    """The figures of a trial."""

    fired: int = 0
    expiring: int = 0
    unjustly: int = 0
    """Jobs that expired before their time."""
    seconds_to_fire: float = 0.0
    """Seconds from the fire time until the last of the jobs had started."""

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            **self.base_faults(),
            f"{self.expired} jobs expired instead of {self.expiring}": self.expired == self.expiring,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"mass schedules: {self.fired:,} job schedulers fired in one instant, all jobs started within "
            f"{self.seconds_to_fire:.1f} s; {self.expired:,} of {self.expiring:,} jobs expired, {self.unjustly} "
            f"before their time; {self.counts}"
        )


@dataclass(frozen=True)
class SchedulersRole:
    """A process that creates job schedulers with the same fire time, and notes each acknowledged one in the journal."""

    url: str
    journal: Journal
    numbers: range
    fire_time: datetime

    def __call__(self) -> None:
        """Create all schedulers."""
        run_loop(self._create_all(), fast=True)

    async def _create_all(self) -> None:
        numbers = iter(self.numbers)
        async with connect_to(self.url) as storage, Queue[Payload, int](QUEUE, storage) as queue:

            async def create() -> None:
                for number in numbers:
                    await queue.upsert_job_scheduler(
                        f"s{number}",
                        every=86_400,
                        start=self.fire_time,
                        name=f"s{number}",
                        data=payload(),
                        keep_completed=KEEP_ALL,
                        keep_failed=KEEP_ALL,
                    )
                    # The job of the fire time counts as added.
                    self.journal.write("added", f"s{number}@{round(self.fire_time.timestamp() * 1000)}", f"s{number}")

            await asyncio.gather(*(create() for _ in range(AT_ONCE)))


def mass_schedules(size: Size, seed: int = 0) -> Outcome:
    """Run on a server whose library has a movable clock."""
    began, outcome = time.monotonic(), Outcome(seed, expiring=size.expiring)
    with open_workspace() as workspace:
        trial = Trial(
            workspace, QUEUE, workspace.url, outcome, Crew(concurrency=50, kill_every=0.3), began + size.seconds
        )
        fire_time = (datetime.now(tz=UTC) + HOUR).replace(microsecond=0)
        trial.run_to_end(SchedulersRole(workspace.url, workspace.journal, range(0, size.schedulers, 2), fire_time))
        trial.run_to_end(SchedulersRole(workspace.url, workspace.journal, range(1, size.schedulers, 2), fire_time))
        trial.continue_until(lambda: not trial.is_producing)
        asyncio.run(_add_mortals(workspace, size))
        asyncio.run(shift_clock(workspace.url, QUEUE, (HOUR + timedelta(minutes=1)).total_seconds()))
        jumped = time.monotonic()
        trial.start()
        # Until a scheduler fires, no job waits. So the trial must not end when no job waits.
        trial.continue_until(lambda: asyncio.run(_have_fired(workspace.url, size.schedulers + 2 * size.expiring)), 0.2)
        evidence = trial.finish(lambda evidence: _misfires(evidence, outcome, size))
        starts = [line.at for line in evidence.lines if line.kind == "start"]
        outcome.seconds_to_fire = max(starts) - jumped
    outcome.seconds = time.monotonic() - began
    return outcome


async def _add_mortals(workspace: ServerWorkspace, size: Size) -> None:
    """Add jobs that expire before the jump, and jobs that do not. Their names are their serial numbers."""
    async with connect_to(workspace.url) as storage, Queue[Payload, int](QUEUE, storage) as queue:
        for ttl, prefix in ((SHORT, "short"), (LONG, "long")):
            options = JobOptions(ttl=ttl, keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)
            names = [f"{prefix}{number}" for number in range(size.expiring)]
            for job in await queue.add_bulk([(name, payload(), options) for name in names]):
                workspace.journal.write("added", job.id, job.name)


async def _have_fired(url: str, count: int) -> bool:
    async with connect_to(url) as storage, Queue[Payload, int](QUEUE, storage) as queue:
        counts = await queue.get_job_counts()
        return sum(counts.values()) >= count


def _misfires(evidence: Evidence, outcome: Outcome, size: Size) -> Iterable[Violation]:
    fired = {job for job in evidence.final_state.ended if job.startswith("s")}
    outcome.fired = len(fired)
    if len(fired) != size.schedulers:
        yield Violation("fired", "", f"{len(fired)} schedulers fired instead of {size.schedulers}")
    for job, stored in evidence.final_state.ended.items():
        expired = stored.reason == "expired"
        if expired and not stored.name.startswith("short"):
            outcome.unjustly += 1
            yield Violation("expired", job, f"expired before its time: {stored}")
        if stored.name.startswith("short") and not expired:
            yield Violation("expired", job, f"did not expire: {stored}")
