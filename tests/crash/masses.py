"""Masses: thousands of job schedulers whose slots come in one instant, and thousands of jobs that expire in it.

The clock jumps from before the slots to after them. Workers, which also fire the slots, are killed meanwhile.
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
from tests.crash.room import Room, open_room
from tests.crash.trial import Crew, Evidence, Figures, Trial

QUEUE: Final = "masses"
HOUR: Final = timedelta(hours=1)
SHORT, LONG = HOUR / 2, 4 * HOUR
"""How long jobs may wait: those of the short time have expired after the jump, the others have not."""
AT_ONCE: Final = 50


@dataclass(frozen=True)
class Size:
    """How many job schedulers, and how many jobs that expire and as many that might; `seconds` bounds the run."""

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
    """From the slot until the last of the jobs had started."""

    def faults(self) -> list[str]:
        """Which rules it breaks; [] is a pass."""
        rules = {
            **self.base_faults(),
            f"{self.expired} jobs expired, {self.expiring} had to": self.expired == self.expiring,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """The run in one line."""
        return (
            f"masses: {self.fired:,} job schedulers fired in one instant, their jobs and the others started within "
            f"{self.seconds_to_fire:.1f} s; {self.expired:,} of {self.expiring:,} jobs expired, {self.unjustly} "
            f"before their time; {self.counts}"
        )


@dataclass(frozen=True)
class SchedulersRole:
    """A process that creates job schedulers with the same slot, and writes down each one that was acknowledged."""

    url: str
    journal: Journal
    numbers: range
    slot: datetime

    def __call__(self) -> None:
        """Create them all."""
        run_loop(self._create_all(), fast=True)

    async def _create_all(self) -> None:
        numbers = iter(self.numbers)
        async with connect_to(self.url) as storage, Queue[Payload, int](QUEUE, storage) as queue:

            async def create() -> None:
                for number in numbers:
                    await queue.upsert_job_scheduler(
                        f"s{number}",
                        every=86_400,
                        start=self.slot,
                        name=f"s{number}",
                        data=payload(),
                        keep_completed=KEEP_ALL,
                        keep_failed=KEEP_ALL,
                    )
                    # The job of the slot is as good as added.
                    self.journal.write("added", f"s{number}@{round(self.slot.timestamp() * 1000)}", f"s{number}")

            await asyncio.gather(*(create() for _ in range(AT_ONCE)))


def masses(size: Size, seed: int = 0) -> Outcome:
    """Run on a server whose library has a clock that can be moved."""
    began, outcome = time.monotonic(), Outcome(seed, expiring=size.expiring)
    with open_room() as room:
        trial = Trial(room, QUEUE, room.url, outcome, Crew(concurrency=50, kill_every=0.3), began + size.seconds)
        slot = (datetime.now(tz=UTC) + HOUR).replace(microsecond=0)
        trial.run_to_end(SchedulersRole(room.url, room.journal, range(0, size.schedulers, 2), slot))
        trial.run_to_end(SchedulersRole(room.url, room.journal, range(1, size.schedulers, 2), slot))
        trial.go_on_until(lambda: not trial.is_producing)
        asyncio.run(_add_mortals(room, size))
        asyncio.run(shift_clock(room.url, QUEUE, (HOUR + timedelta(minutes=1)).total_seconds()))
        jumped = time.monotonic()
        trial.start()
        # Until a slot is fired nothing waits: the end of the work is not the end of the trial.
        trial.go_on_until(lambda: asyncio.run(_have_fired(room.url, size.schedulers + 2 * size.expiring)), 0.2)
        evidence = trial.finish(lambda evidence: _misfires(evidence, outcome, size))
        starts = [line.at for line in evidence.lines if line.kind == "start"]
        outcome.seconds_to_fire = max(starts) - jumped
    outcome.seconds = time.monotonic() - began
    return outcome


async def _add_mortals(room: Room, size: Size) -> None:
    """Add jobs that expire before the jump, and jobs that do not; their names are their serials."""
    async with connect_to(room.url) as storage, Queue[Payload, int](QUEUE, storage) as queue:
        for ttl, prefix in ((SHORT, "short"), (LONG, "long")):
            options = JobOptions(ttl=ttl, keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)
            names = [f"{prefix}{number}" for number in range(size.expiring)]
            for job in await queue.add_bulk([(name, payload(), options) for name in names]):
                room.journal.write("added", job.id, job.name)


async def _have_fired(url: str, count: int) -> bool:
    async with connect_to(url) as storage, Queue[Payload, int](QUEUE, storage) as queue:
        counts = await queue.get_job_counts()
        return sum(counts.values()) >= count


def _misfires(evidence: Evidence, outcome: Outcome, size: Size) -> Iterable[Violation]:
    fired = {job for job in evidence.stock.ended if job.startswith("s")}
    outcome.fired = len(fired)
    if len(fired) != size.schedulers:
        yield Violation("fired", "", f"{len(fired)} slots were fired, there were {size.schedulers}")
    for job, stored in evidence.stock.ended.items():
        expired = stored.reason == "expired"
        if expired and not stored.name.startswith("short"):
            outcome.unjustly += 1
            yield Violation("expired", job, f"expired before its time: {stored}")
        if stored.name.startswith("short") and not expired:
            yield Violation("expired", job, f"did not expire: {stored}")
