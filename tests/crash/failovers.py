"""Failovers: a replica takes over, planned or because the primary was killed, while jobs are added and run.

Replication is asynchronous: a killed primary may have acknowledged writes that no replica has. The check excuses only
this: violations of jobs that were written shortly before the kill, unless they were added with durability="replicated".
A planned failover loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from glidemq_async.storage.redis.wire import ReplyError
from tests.crash.checker import Violation
from tests.crash.roles import AddOptions, Spec, payload
from tests.crash.trial import Crew, Evidence, Figures, Trial
from tests.crash.workspace import Workspace, open_base
from tests.support.servers import Cluster, SentinelGroup, Server, cluster, eventually, sentinel

MOST_UNREPLICATED = 1.0
"""The number of seconds before a kill whose writes may be lost. Replicas on the same machine are rarely that far
behind.
"""
EXCUSABLE = {"doubled", "fence", "ends", "stalls", "strange"}
"""Violations that the loss of a claim or an outcome explains: the job runs again, or another job gets its id."""
DEMANDED = (
    "0 lost in planned failovers, 0 lost with durability='replicated'; a killed primary loses at most the writes of "
    f"its last {MOST_UNREPLICATED:g} s; 0 doubled otherwise, 0 ended without a run, 0 failed"
)
Kind: TypeAlias = Literal["planned", "killed"]


@dataclass(frozen=True)
class Size:
    """The number of failovers of each kind, and of jobs around each one."""

    planned: int = 1
    killed: int = 1
    jobs: int = 1_200
    seconds: float = 90.0


@dataclass
class Outcome(Figures):
    """The figures of several trials, and the losses of the failovers."""

    planned: int = 0
    killed: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict[str, int])
    """Adds acknowledged in the second before a failover and during it, by the kind of failover."""
    lost: dict[str, int] = field(default_factory=dict[str, int])
    """Acknowledged jobs that were lost, by the kind of failover. Jobs with durability="replicated" are counted
    separately.
    """
    earliest: float = 0.0
    """Seconds between the acknowledgement of the oldest lost job and the kill."""
    excused: int = 0
    """Violations that the loss of unreplicated writes explains."""
    longest: float = 0.0
    """Seconds from the command or the kill until the new primary was known."""

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            **self.base_faults(),
            "not every kind of failover happened": self.planned > 0 and self.killed > 0,
            "no add was acknowledged around a failover": all(self.acknowledged.values()),
            f"replicated jobs were lost: {self.lost}": not self.lost.get("replicated"),
            f"planned failovers lost jobs: {self.lost}": not self.lost.get("planned"),
            f"jobs acknowledged {self.earliest:.2f} s before a kill were lost": self.earliest <= MOST_UNREPLICATED,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"{self.planned} planned failovers and {self.killed} killed primaries, new primary known within "
            f"{self.longest:.1f} s; lost in planned ones {self.lost.get('planned', 0)} of "
            f"{self.acknowledged.get('planned', 0)} adds acknowledged around them; lost with killed ones "
            f"{self.lost.get('killed', 0)} of {self.acknowledged.get('killed', 0)} (acknowledged at most "
            f"{self.earliest:.2f} s before), "
            f'of those with durability="replicated" {self.lost.get("replicated", 0)}; {self.excused} violations '
            f"excused by unreplicated writes; {self.counts}"
        )


class Deployment(Protocol):
    """Servers of which one is the primary of a queue."""

    url: str

    async def primary(self, queue: str) -> Server:
        """Return the present primary of a queue."""
        ...

    async def plan(self, primary: Server) -> None:
        """Begin a planned failover of this primary."""
        ...


class SentinelDeployment:
    """A service under Sentinel."""

    def __init__(self, group: SentinelGroup) -> None:
        self._group = group
        self.url = group.url

    async def primary(self, queue: str) -> Server:
        """Return the primary that a sentinel names."""
        return await self._group.current()

    async def plan(self, primary: Server) -> None:
        """Make a sentinel switch. It refuses while it still informs the replicas about the previous switch."""
        await _accepted(self._group.sentinels[0], "SENTINEL", "FAILOVER", self._group.service)


class ClusterDeployment:
    """A cluster."""

    def __init__(self, made: Cluster) -> None:
        self._cluster = made
        self.url = made.url

    async def primary(self, queue: str) -> Server:
        """Return the owner of the queue's cluster slot."""
        return await self._cluster.owner(f"glide:{{{queue}}}")

    async def plan(self, primary: Server) -> None:
        """Make the replica of this primary take over."""
        replica = await self._cluster.replica_of(primary)
        await _accepted(replica, "CLUSTER", "FAILOVER")


async def _accepted(server: Server, *words: str) -> None:
    async def is_accepted() -> bool:
        return bool(await server.command(*words))

    await eventually(is_accepted, f"{' '.join(words)} is accepted")


@dataclass
class _Switch:
    kind: Kind
    began: float
    ended: float

    def touches(self, at: float) -> bool:
        """Return whether a write of this time may be lost."""
        return self.began - MOST_UNREPLICATED <= at <= self.ended


class _Failovers:
    """One run."""

    def __init__(
        self,
        base: Workspace,
        deployment: Deployment,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        size: Size,
        outcome: Outcome,
    ) -> None:
        self._base = base
        self._deployment = deployment
        self._run = run
        self._size = size
        self._outcome = outcome
        self._deadline = time.monotonic() + size.seconds

    def run(self, kind: Kind, number: int) -> None:
        """Make one failover of the primary of a new queue."""
        outcome = self._outcome
        queue = f"{kind}-{number}"
        trial = Trial(self._base, queue, self._deployment.url, outcome, Crew(kill_every=1.0), self._deadline)
        old: Server = self._run(self._deployment.primary(queue))
        trial.start()
        trial.produce([_spec(trial, serial) for serial in range(self._size.jobs)], tasks=6, pace=0.02)
        trial.await_first_start()
        trial.continue_for(trial.random.uniform(0.8, 1.5))
        switch = _Switch(kind, time.monotonic(), 0.0)
        if kind == "killed":
            old.kill()
        else:
            self._run(self._deployment.plan(old))
        trial.continue_until(lambda: self._has_moved(queue, old))
        switch.ended = time.monotonic()
        outcome.longest = max(outcome.longest, switch.ended - switch.began)
        setattr(outcome, kind, getattr(outcome, kind) + 1)
        if old.process is None:
            # The killed server returns with its old data. It must not be taken for the primary, and becomes a replica
            # of the new one.
            self._run(old.start())
        trial.continue_for(1.0)
        self._evaluate(trial, switch)

    def _has_moved(self, queue: str, old: Server) -> bool:
        with contextlib.suppress(ReplyError, OSError, LookupError):
            return self._run(self._deployment.primary(queue)) is not old
        return False

    def _evaluate(self, trial: Trial, switch: _Switch) -> None:
        outcome = self._outcome
        touched: set[str] = set()

        def remember(evidence: Evidence) -> list[Violation]:
            touched.update(line.words[0] for line in evidence.lines if line.kind in _WRITES and switch.touches(line.at))
            return []

        def is_excused(one: Violation) -> bool:
            excused = one.kind == "lost" or (switch.kind == "killed" and one.kind in EXCUSABLE and one.job in touched)
            outcome.excused += excused and one.kind != "lost"
            return excused

        evidence = trial.finish(remember, is_excused)
        around = sum(switch.touches(at) for _, _, at in evidence.added())
        outcome.acknowledged[switch.kind] = outcome.acknowledged.get(switch.kind, 0) + around
        ended = evidence.final_state.ended
        for job, serial, at in evidence.added():
            if job not in ended or ended[job].name != serial:
                kind = "replicated" if int(serial) % 2 else switch.kind
                outcome.lost[kind] = outcome.lost.get(kind, 0) + 1
                outcome.earliest = max(outcome.earliest, switch.began - at)


#: The lines of a journal that follow a write of the server.
_WRITES = ("added", "start", "completed", "failed", "retrying", "returned")


def _spec(trial: Trial, serial: int) -> Spec:
    draw = trial.random
    sleep = draw.choices((0.0, draw.uniform(0.01, 0.1), draw.uniform(0.3, 2.0)), (45, 50, 5))[0]
    instructions = payload(sleep, failures=draw.choices((0, 1), (95, 5))[0])
    options: AddOptions = {"durability": "replicated"} if serial % 2 else {}
    return {
        "serial": serial,
        "job_id": None,
        "delay": None,
        "payload": instructions,
        "name": str(serial),
        "options": options,
    }


def sentinels(size: Size, seed: int = 0) -> Outcome:
    """Run on a service under Sentinel."""
    with asyncio.Runner() as runner, _entered(runner, sentinel(replicas=2)) as group:
        return _failovers(runner, SentinelDeployment(group), size, seed)


def clusters(size: Size, seed: int = 0) -> Outcome:
    """Run on a cluster."""
    with asyncio.Runner() as runner, _entered(runner, cluster()) as made:
        return _failovers(runner, ClusterDeployment(made), size, seed)


@contextlib.contextmanager
def _entered(runner: asyncio.Runner, manager: contextlib.AbstractAsyncContextManager[Any]) -> Generator[Any]:
    entered = runner.run(manager.__aenter__())
    try:
        yield entered
    finally:
        runner.run(manager.__aexit__(None, None, None))


def _failovers(runner: asyncio.Runner, deployment: Deployment, size: Size, seed: int) -> Outcome:
    began, outcome = time.monotonic(), Outcome(seed)
    with open_base() as base:
        run = _Failovers(base, deployment, runner.run, size, outcome)
        for number in range(size.planned):
            run.run("planned", number)
        for number in range(size.killed):
            run.run("killed", number)
    outcome.seconds = time.monotonic() - began
    return outcome
