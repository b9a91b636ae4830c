"""The crash scenarios: their sizes, what is demanded of them, and how one runs in a process of its own.

Each forks from a warm image, which a test runner with threads and event loops is not.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tests.crash import (
    clocks,
    failovers,
    links,
    masses,
    permissions,
    poison,
    recovery,
    restarts,
    shutdowns,
    squall,
    storm,
)
from tests.crash.size import PATIENCE, scaled, seconds

ROOT: Final = Path(__file__).parents[2]


class Outcome(Protocol):
    """What every scenario answers."""

    @property
    def line(self) -> str:
        """The run in one line."""
        ...

    def faults(self) -> list[str]:
        """Which rules it breaks; [] is a pass."""
        ...


_T = TypeVar("_T", bound=Outcome)


class Scenario(NamedTuple, Generic[_T]):
    """One scenario in one size. The size and the outcome are data classes of the scenario's module."""

    name: str
    outcome: type[_T]
    size: Any
    guarantee: str
    demanded: str

    def run(self, seed: int) -> _T:
        """Run it in its own process, bounded by its own limit and a little more."""
        options = [f"--{name}={json.dumps(value)}" for name, value in dataclasses.asdict(self.size).items()]
        command = [sys.executable, "-m", "tests.crash", self.name, f"--seed={seed}", *options]
        limit = self.size.seconds + PATIENCE
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command[1:])}\n{done.stderr}")
        found = self.outcome(**json.loads(done.stdout))
        print(found.line)
        return found


STORM: Final = Scenario(
    "storm",
    storm.Outcome,
    storm.Size(jobs=scaled(20_000), kills=scaled(1_000), zombies=scaled(30), seconds=seconds(170)),
    "No acknowledged job is lost, none ends twice",
    "0 lost, 0 doubled",
)
#: Small, since what it shows takes seconds: with the fence it passes, without it fails.
SKIRMISH: Final = Scenario(
    "storm",
    storm.Outcome,
    storm.Size(jobs=1_500, kills=60, zombies=8, seconds=60.0),
    "The same in small, with the fence",
    "0 lost, 0 doubled",
)
UNFENCED: Final = SKIRMISH._replace(
    size=dataclasses.replace(SKIRMISH.size, fenced=False),
    guarantee="The checks fail when fencing is switched off",
    demanded="some doubled",
)
SQUALL: Final = Scenario(
    "squall",
    squall.Outcome,
    squall.Size(jobs=scaled(2_000), kills=scaled(120), zombies=max(12, scaled(12)), seconds=seconds(60)),
    "No limit of a key or of the queue is exceeded while fences are valid, no order of a key is broken",
    "0 broken, every limit met",
)
#: With a library that is broken in one place each, the same in small must find just that.
DEFECTIVE: Final = {
    name: SQUALL._replace(
        size=squall.Size(jobs=600, kills=40, zombies=defect.zombies, seconds=90.0, defect=name),
        guarantee=f"The proof of the limits fails when {name}",
        demanded=f"some {defect.kind}",
    )
    for name, defect in squall.DEFECTS.items()
}
POISON: Final = Scenario(
    "poison",
    poison.Outcome,
    poison.Size(poison=scaled(6), good=scaled(600), seconds=seconds(30)),
    "Poison is given up, alone",
    f"{poison.MAX_STALLED + 1} stalls each",
)
RESTARTS: Final = Scenario(
    "restarts",
    restarts.Outcome,
    restarts.Size(own=scaled(12), file=scaled(4), seconds=seconds(60)),
    "A server killed while its disk keeps up loses nothing that was acknowledged",
    "0 lost, 0 doubled",
)
SHUTDOWNS: Final = Scenario(
    "shutdowns",
    shutdowns.Outcome,
    shutdowns.Size(shutdowns=scaled(60), seconds=seconds(60)),
    "SIGTERM ends a worker in time and loses nothing",
    "end within grace + 1 s, jobs back within 1 s",
)
RECOVERY: Final = Scenario(
    "recovery",
    recovery.Outcome,
    recovery.Size(kills=scaled(16), seconds=seconds(40)),
    "Jobs of a killed worker run again soon",
    "p99 within lease + 1 s, all within lease + 2 s",
)

# -- trials of servers, links and clocks ------------------------------------------------------------------------------
# Their sizes are bounded, since the store keeps the last 100,000 events for the proof.

NOTHING_WRONG: Final = "0 lost, 0 doubled, 0 ended without a run, 0 failed"
CLOCKS: Final = Scenario(
    "clocks",
    clocks.Outcome,
    clocks.Size(jumps=min(200, scaled(20)), jobs=min(12_000, scaled(1_200)), seconds=seconds(60)),
    "The server's clock may jump in both directions while jobs run and workers die",
    f"{NOTHING_WRONG}, at most {clocks.MOST_BETWEEN_STARTS:g} s between starts",
)
LINKS: Final = Scenario(
    "links",
    links.Outcome,
    links.Size(jobs=min(1_000, scaled(100)), seconds=seconds(60)),
    "Workers and producers may be behind a slow link, with large payloads and a lease of a second",
    f"{NOTHING_WRONG}, at most one claim in two for nothing",
)
SENTINELS: Final = Scenario(
    "sentinels",
    failovers.Outcome,
    failovers.Size(planned=min(10, scaled(1)), killed=min(10, scaled(1)), seconds=seconds(90)),
    "Sentinel may fail over, planned or after the death of the primary, while jobs run",
    failovers.DEMANDED,
)
CLUSTERS: Final = SENTINELS._replace(
    name="clusters", guarantee="A cluster may fail over, planned or after the death of the primary, while jobs run"
)
PERMISSIONS: Final = Scenario(
    "permissions",
    permissions.Outcome,
    permissions.Size(jobs=min(10_000, scaled(1_600)), seconds=seconds(40)),
    "The user of workers may have the documented commands alone, and no channels",
    NOTHING_WRONG,
)
MASSES: Final = Scenario(
    "masses",
    masses.Outcome,
    masses.Size(schedulers=min(20_000, scaled(20_000)), expiring=min(5_000, scaled(5_000)), seconds=seconds(120)),
    "20,000 job schedulers may have one slot, and 5,000 jobs may expire in the same instant",
    f"{NOTHING_WRONG}, each slot fires once, what expires had to",
)
TRIALS: Final[list[Scenario[Any]]] = [CLOCKS, LINKS, SENTINELS, CLUSTERS, PERMISSIONS, MASSES]

#: By name: the sizes and the functions that run them, for the command line.
RUNNERS: Final[dict[str, tuple[Any, Callable[..., Outcome]]]] = {
    "storm": (storm.Size(), storm.storm),
    "squall": (squall.Size(), squall.squall),
    "poison": (poison.Size(), poison.poison),
    "restarts": (restarts.Size(), restarts.restarts),
    "shutdowns": (shutdowns.Size(), shutdowns.shutdowns),
    "recovery": (recovery.Size(), recovery.recovery),
    "clocks": (clocks.Size(), clocks.clocks),
    "sentinels": (failovers.Size(), failovers.sentinels),
    "clusters": (failovers.Size(), failovers.clusters),
    "masses": (masses.Size(), masses.masses),
    "links": (links.Size(), links.links),
    "permissions": (permissions.Size(), permissions.permissions),
}
