"""Recovery: the time until the jobs of a killed worker run again on another worker that was idle."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field

from tests.crash.journal import JournalReader, Line
from tests.crash.queues import add_all
from tests.crash.roles import Spec, WorkerRole, payload
from tests.crash.workspace import ServerWorkspace, open_workspace

HELD = 20


@dataclass(frozen=True)
class Size:
    """The number of kills, and of concurrent ones; `lease` in seconds, `seconds` bounds the run."""

    kills: int = 16
    queues: int = 4
    lease: float = 2.0
    seconds: float = 60.0


@dataclass
class Outcome:
    """The pause of each job, from the kill to its next start."""

    seed: int
    lease: float
    pauses: list[float] = field(default_factory=list[float])
    seconds: float = 0.0

    def share(self, part: float) -> float:
        """Return the pause that this share of the jobs did not exceed."""
        return sorted(self.pauses)[min(len(self.pauses) - 1, int(part * len(self.pauses)))]

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        p99, longest = self.share(0.99), max(self.pauses)
        rules = {
            f"p99 {p99:.2f} s is over the lease plus 1 s": p99 <= self.lease + 1.0,
            f"{longest:.2f} s is over the lease plus 2 s": longest <= self.lease + 2.0,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"recovery: {len(self.pauses)} jobs of killed workers with a lease of {self.lease:g} s ran again after "
            f"p50 {self.share(0.5):.2f}, p99 {self.share(0.99):.2f}, at most {max(self.pauses):.2f} s, "
            f"{self.seconds:.0f} s, seed {self.seed}"
        )


class Recovery:
    """One run."""

    def __init__(self, workspace: ServerWorkspace, size: Size, seed: int) -> None:
        self._workspace = workspace
        self._size = size
        self._random = random.Random(seed)
        self._deadline = time.monotonic() + size.seconds
        self._reader: JournalReader = workspace.journal.reader()
        self._starts: dict[int, list[Line]] = {}
        self.outcome = Outcome(seed, size.lease)

    def run(self) -> None:
        """Kill workers with jobs, several at a time on separate queues, until there were enough kills."""
        done = 0
        while done < self._size.kills:
            self._round([f"round-{done + number}" for number in range(self._size.queues)])
            done += self._size.queues

    def _round(self, queues: list[str]) -> None:
        children = self._workspace.children
        holders = [children.fork(self._role(queue)) for queue in queues]
        for queue in queues:
            asyncio.run(add_all(self._workspace.url, queue, [self._spec(number) for number in range(HELD)]))
        self._await_starts(holders)
        successors = [children.fork(self._role(queue)) for queue in queues]
        killed: dict[int, float] = {}
        for holder, successor in zip(holders, successors, strict=True):
            # At any moment between two renewals.
            time.sleep(self._random.uniform(0.1, self._size.lease / 3))
            killed[successor] = time.monotonic()
            children.send(holder, signal.SIGKILL)
        self._await_starts(successors)
        for successor in successors:
            self.outcome.pauses += [line.at - killed[successor] for line in self._starts[successor]]
            assert all(line.words[1] == "2" for line in self._starts[successor]), (
                "each job is claimed for the second time"
            )
            children.send(successor, signal.SIGKILL)
            children.wait_for(successor, 5)

    def _spec(self, number: int) -> Spec:
        return {"serial": number, "job_id": None, "delay": None, "payload": payload(60.0)}

    def _role(self, queue: str) -> WorkerRole:
        return WorkerRole(self._workspace.url, queue, self._workspace.journal, concurrency=HELD, lease=self._size.lease)

    def _await_starts(self, pids: list[int]) -> None:
        while any(len(self._starts.get(pid, [])) < HELD for pid in pids):
            self._workspace.children.reap(0.02)
            for line in self._reader.new_lines():
                if line.kind == "start":
                    self._starts.setdefault(line.pid, []).append(line)
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"jobs were not reclaimed:\n{self._workspace.complaints}")


def recovery(size: Size, seed: int = 0) -> Outcome:
    """Run on a new server."""
    began = time.monotonic()
    with open_workspace() as workspace:
        run = Recovery(workspace, size, seed)
        run.run()
    run.outcome.seconds = time.monotonic() - began
    return run.outcome
