"""Recovery: how soon the jobs of a killed worker run again on another one that was idle."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field

from tests.crash.journal import JournalReader, Line
from tests.crash.queues import add_all
from tests.crash.roles import Spec, WorkerRole, payload
from tests.crash.room import Room, open_room

HELD = 20


@dataclass(frozen=True)
class Size:
    """How many workers are killed, so many at a time; `lease` in seconds, `seconds` bounds the run."""

    kills: int = 16
    lanes: int = 4
    lease: float = 2.0
    seconds: float = 60.0


@dataclass
class Outcome:
    """How long each job stood still, from the kill to its next start."""

    seed: int
    lease: float
    pauses: list[float] = field(default_factory=list[float])
    seconds: float = 0.0

    def share(self, part: float) -> float:
        """The pause that this part of the jobs did not exceed."""
        return sorted(self.pauses)[min(len(self.pauses) - 1, int(part * len(self.pauses)))]

    def faults(self) -> list[str]:
        """Which rules it breaks; [] is a pass."""
        p99, longest = self.share(0.99), max(self.pauses)
        rules = {
            f"p99 {p99:.2f} s is over the lease plus 1 s": p99 <= self.lease + 1.0,
            f"{longest:.2f} s is over the lease plus 2 s": longest <= self.lease + 2.0,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """The run in one line."""
        return (
            f"recovery: {len(self.pauses)} jobs of killed workers with a lease of {self.lease:g} s ran again after "
            f"p50 {self.share(0.5):.2f}, p99 {self.share(0.99):.2f}, at most {max(self.pauses):.2f} s, "
            f"{self.seconds:.0f} s, seed {self.seed}"
        )


class Recovery:
    """One run."""

    def __init__(self, room: Room, size: Size, seed: int) -> None:
        self._room = room
        self._size = size
        self._random = random.Random(seed)
        self._deadline = time.monotonic() + size.seconds
        self._reader: JournalReader = room.journal.reader()
        self._starts: dict[int, list[Line]] = {}
        self.outcome = Outcome(seed, size.lease)

    def run(self) -> None:
        """Kill holders, several at a time on queues of their own, until it was enough."""
        done = 0
        while done < self._size.kills:
            self._round([f"round-{done + number}" for number in range(self._size.lanes)])
            done += self._size.lanes

    def _round(self, queues: list[str]) -> None:
        herd = self._room.herd
        holders = [herd.fork(self._role(queue)) for queue in queues]
        for queue in queues:
            asyncio.run(add_all(self._room.url, queue, [self._spec(number) for number in range(HELD)]))
        self._await_starts(holders)
        heirs = [herd.fork(self._role(queue)) for queue in queues]
        killed: dict[int, float] = {}
        for holder, heir in zip(holders, heirs, strict=True):
            # At any moment between two renewals.
            time.sleep(self._random.uniform(0.1, self._size.lease / 3))
            killed[heir] = time.monotonic()
            herd.send(holder, signal.SIGKILL)
        self._await_starts(heirs)
        for heir in heirs:
            self.outcome.pauses += [line.at - killed[heir] for line in self._starts[heir]]
            assert all(line.words[1] == "2" for line in self._starts[heir]), "each job is claimed for the second time"
            herd.send(heir, signal.SIGKILL)
            herd.wait_for(heir, 5)

    def _spec(self, number: int) -> Spec:
        return {"serial": number, "job_id": None, "delay": None, "told": payload(60.0)}

    def _role(self, queue: str) -> WorkerRole:
        return WorkerRole(self._room.url, queue, self._room.journal, concurrency=HELD, lease=self._size.lease)

    def _await_starts(self, pids: list[int]) -> None:
        while any(len(self._starts.get(pid, [])) < HELD for pid in pids):
            self._room.herd.reap(0.02)
            for line in self._reader.new_lines():
                if line.kind == "start":
                    self._starts.setdefault(line.pid, []).append(line)
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"jobs were not taken over:\n{self._room.complaints}")


def recovery(size: Size, seed: int = 0) -> Outcome:
    """Run on a server of our own."""
    began = time.monotonic()
    with open_room() as room:
        run = Recovery(room, size, seed)
        run.run()
    run.outcome.seconds = time.monotonic() - began
    return run.outcome
