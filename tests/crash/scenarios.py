"""The crash scenarios: their sizes, their requirements, and the separate process in which each one runs.

Each forks from a warm image. A test runner with threads and event loops cannot.
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
    limit_stress,
    mass_schedules,
    permissions,
    poison,
    recovery,
    restarts,
    shutdowns,
    slow_links,
    stress,
)
from tests.crash.size import PATIENCE, scaled, seconds

ROOT: Final = Path(__file__).parents[2]


class Outcome(Protocol):
    """The interface of the outcome of every scenario."""

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        ...

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
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
        """Run it in a separate process, bounded by its own time limit plus a margin."""
        options = [f"--{name}={json.dumps(value)}" for name, value in dataclasses.asdict(self.size).items()]
        command = [sys.executable, "-m", "tests.crash", self.name, f"--seed={seed}", *options]
        limit = self.size.seconds + PATIENCE
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command[1:])}\n{done.stderr}")
        found = self.outcome(**json.loads(done.stdout))
        print(found.line)
        return found


STRESS: Final = Scenario(
    "stress",
    stress.Outcome,
    stress.Size(
        jobs=scaled(20_000),
        kills=scaled(1_000),
        zombies=max(15, scaled(30)),
        seconds=seconds(170),
        everywhere=True,
    ),
    "No acknowledged job is lost and none ends twice",
    "0 lost, 0 doubled",
)
#: Small, because its effect needs only seconds: it passes with fencing and fails without it.
SMALL_STRESS: Final = Scenario(
    "stress",
    stress.Outcome,
    stress.Size(jobs=1_500, kills=60, zombies=8, seconds=60.0),
    "The same in a small run with fencing",
    "0 lost, 0 doubled",
)
UNFENCED: Final = SMALL_STRESS._replace(
    size=dataclasses.replace(SMALL_STRESS.size, fenced=False),
    guarantee="The checks detect disabled fencing",
    demanded="some doubled",
)
LIMIT_STRESS: Final = Scenario(
    "limit_stress",
    limit_stress.Outcome,
    # With fewer jobs a run may not reach each of the limits.
    limit_stress.Size(
        jobs=max(1_000, scaled(2_000)), kills=max(60, scaled(120)), zombies=max(12, scaled(12)), seconds=seconds(60)
    ),
    "No run with a valid fencing token exceeds a limit of its key or queue, and keys keep their order",
    "0 broken, every limit reached",
)
#: Small runs of a library with one defect each. The check must detect exactly that defect.
DEFECTIVE: Final = {
    name: LIMIT_STRESS._replace(
        size=limit_stress.Size(jobs=600, kills=40, zombies=defect.zombies, seconds=90.0, defect=name),
        guarantee=f"The check of the limits detects the defect: {name}",
        demanded=f"some {defect.kind}",
    )
    for name, defect in limit_stress.DEFECTS.items()
}
POISON: Final = Scenario(
    "poison",
    poison.Outcome,
    poison.Size(poison=scaled(6), good=scaled(600), seconds=seconds(30)),
    "Jobs that kill their worker fail after their stalls, and no other job fails",
    f"{poison.MAX_STALLED + 1} stalls each",
)
RESTARTS: Final = Scenario(
    "restarts",
    restarts.Outcome,
    restarts.Size(own=scaled(12), file=scaled(4), seconds=seconds(60)),
    "A killed server loses no acknowledged job while its disk syncs in time",
    "0 lost, 0 doubled",
)
SHUTDOWNS: Final = Scenario(
    "shutdowns",
    shutdowns.Outcome,
    shutdowns.Size(shutdowns=scaled(60), seconds=seconds(60)),
    "SIGTERM ends a worker in time and loses nothing",
    "workers end within grace + 1 s, jobs wait again within 1 s",
)
RECOVERY: Final = Scenario(
    "recovery",
    recovery.Outcome,
    recovery.Size(kills=scaled(16), seconds=seconds(40)),
    "Jobs of a killed worker run again soon after their lease",
    "p99 within lease + 1 s, all within lease + 2 s",
)

# -- trials of servers, links and clocks ------------------------------------------------------------------------------
# Their sizes are bounded, because the store keeps the last 100,000 events for the check.

NOTHING_WRONG: Final = "0 lost, 0 doubled, 0 ended without a run, 0 failed"
CLOCKS: Final = Scenario(
    "clocks",
    clocks.Outcome,
    clocks.Size(jumps=min(200, scaled(20)), jobs=min(12_000, scaled(1_200)), seconds=seconds(60)),
    "Nothing breaks when the server's clock jumps forward and back while jobs run and workers die",
    f"{NOTHING_WRONG}, at most {clocks.MOST_BETWEEN_STARTS:g} s between starts",
)
SLOW_LINKS: Final = Scenario(
    "slow_links",
    slow_links.Outcome,
    slow_links.Size(jobs=max(100, min(1_000, scaled(100))), seconds=seconds(60)),
    "Nothing breaks behind a slow link with large payloads and a lease of one second",
    f"{NOTHING_WRONG}, at most every second claim of a worker that lives does not start its job",
)
SENTINELS: Final = Scenario(
    "sentinels",
    failovers.Outcome,
    failovers.Size(planned=min(10, scaled(1)), killed=min(10, scaled(1)), seconds=seconds(90)),
    "Jobs survive failovers of Sentinel, planned or after the death of the primary",
    failovers.DEMANDED,
)
CLUSTERS: Final = SENTINELS._replace(
    name="clusters", guarantee="Jobs survive failovers of a cluster, planned or after the death of the primary"
)
PERMISSIONS: Final = Scenario(
    "permissions",
    permissions.Outcome,
    permissions.Size(jobs=min(10_000, scaled(1_600)), seconds=seconds(40)),
    "The documented commands are sufficient permissions, even without channels",
    NOTHING_WRONG,
)
MASS_SCHEDULES: Final = Scenario(
    "mass_schedules",
    mass_schedules.Outcome,
    mass_schedules.Size(
        schedulers=min(20_000, scaled(20_000)), expiring=min(5_000, scaled(5_000)), seconds=seconds(120)
    ),
    "20,000 job schedulers fire once each at one time, at which 5,000 jobs expire",
    f"{NOTHING_WRONG}, each scheduler fires once, exactly the expired jobs fail",
)
#: Their figures depend on how fast the servers and workers are, so they run alone.
FAILOVERS: Final[list[Scenario[Any]]] = [SENTINELS, CLUSTERS]
TRIALS: Final[list[Scenario[Any]]] = [CLOCKS, SLOW_LINKS, SENTINELS, CLUSTERS, PERMISSIONS, MASS_SCHEDULES]

#: The sizes and functions of the scenarios by name, for the command line.
RUNNERS: Final[dict[str, tuple[Any, Callable[..., Outcome]]]] = {
    "stress": (stress.Size(), stress.stress),
    "limit_stress": (limit_stress.Size(), limit_stress.limit_stress),
    "poison": (poison.Size(), poison.poison),
    "restarts": (restarts.Size(), restarts.restarts),
    "shutdowns": (shutdowns.Size(), shutdowns.shutdowns),
    "recovery": (recovery.Size(), recovery.recovery),
    "clocks": (clocks.Size(), clocks.clocks),
    "sentinels": (failovers.Size(), failovers.sentinels),
    "clusters": (failovers.Size(), failovers.clusters),
    "mass_schedules": (mass_schedules.Size(), mass_schedules.mass_schedules),
    "slow_links": (slow_links.Size(), slow_links.slow_links),
    "permissions": (permissions.Size(), permissions.permissions),
}
