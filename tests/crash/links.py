"""Slow link: workers and producers reach the server through a link of limited bandwidth, with large payloads."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tests.crash.journal import Journal, read_lines
from tests.crash.roles import Spec, payload, run_loop
from tests.crash.room import Room, open_room
from tests.crash.trial import Crew, Figures, Trial
from tests.support.slow_link import SlowLink

QUEUE = "link"
KIB = 1024


@dataclass(frozen=True)
class Size:
    """How much is sent: jobs of up to `most` KiB over `rate` KiB a second, and `delay` seconds each way."""

    jobs: int = 160
    most: int = 400
    rate: int = 6_000
    delay: float = 0.02
    seconds: float = 60.0


@dataclass
class Outcome(Figures):
    """The figures of a trial, and how much was sent over the link."""

    sent: float = 0.0
    """MiB of payloads."""
    unstarted: int = 0
    """Claims whose job did not start."""

    def faults(self) -> list[str]:
        """Which rules it breaks; [] is a pass."""
        rules = {
            **self.base_faults(),
            f"{self.unstarted} claims were for nothing in {self.runs} runs": self.unstarted <= self.runs,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """The run in one line."""
        return f"slow link: {self.sent:.0f} MiB of payloads, {self.unstarted} claims did not start, {self.counts}"


@dataclass(frozen=True)
class LinkRole:
    """A process that carries bytes between a loopback port, which it writes down, and that of the server."""

    port: int
    journal: Journal
    rate: float
    delay: float

    def __call__(self) -> None:
        """Carry until the process is killed."""
        run_loop(self._carry())

    async def _carry(self) -> None:
        async with SlowLink(self.port, rate=self.rate, delay=self.delay) as link:
            self.journal.write("link", link.port)
            await asyncio.Event().wait()


def links(size: Size, seed: int = 0) -> Outcome:
    """Run on a server of our own, whose port only the parent reaches directly."""
    began, outcome = time.monotonic(), Outcome(seed)
    with open_room(unix=False) as room:
        port = _open_link(room, size, began + size.seconds)
        url = f"redis://127.0.0.1:{port}"
        crew = Crew(workers=2, concurrency=20, kill_every=2.0)
        trial = Trial(room, QUEUE, url, outcome, crew, began + size.seconds, near=room.url)
        specs = [_spec(trial, size, serial) for serial in range(size.jobs)]
        outcome.sent = sum(len(spec["told"].get("filler", "")) for spec in specs) / KIB / KIB
        # Half of them wait when the first worker comes, so that it can claim as many as it has slots.
        trial.produce(specs[: size.jobs // 2], at_once=10)
        trial.go_on_until(lambda: not trial.is_producing)
        trial.start()
        trial.produce(specs[size.jobs // 2 :], at_once=10)
        evidence = trial.finish()
        outcome.unstarted = sum(told["active"] for told in evidence.events.values()) - outcome.runs
    outcome.seconds = time.monotonic() - began
    return outcome


def _open_link(room: Room, size: Size, deadline: float) -> int:
    assert room.server.port
    room.herd.fork(LinkRole(room.server.port, room.journal, size.rate * KIB, size.delay))
    while time.monotonic() < deadline:
        for line in read_lines(room.journal):
            if line.kind == "link":
                return int(line.words[0])
        room.herd.reap(0.02)
    raise TimeoutError(f"the link was not opened:\n{room.complaints}")


def _spec(trial: Trial, size: Size, serial: int) -> Spec:
    draw = trial.random
    told = payload(draw.uniform(0.0, 0.2), failures=draw.choices((0, 1), (95, 5))[0])
    length = draw.choice((100, draw.randrange(size.most * KIB), size.most * KIB))
    told["filler"] = "x" * length
    return {"serial": serial, "job_id": None, "delay": None, "told": told, "name": str(serial)}
