"""Slow links: workers and producers reach the server through a link of limited bandwidth, with large payloads."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tests.crash.journal import Journal, read_lines
from tests.crash.roles import Spec, payload, run_loop
from tests.crash.trial import Crew, Figures, Trial
from tests.crash.workspace import ServerWorkspace, open_workspace
from tests.support.slow_link import SlowLink

QUEUE = "link"
KIB = 1024
CONCURRENCY = 20
LOST_PER_KILL = CONCURRENCY / 2
"""Claims of a killed worker whose jobs have not started, on average at most."""


@dataclass(frozen=True)
class Size:
    """The load: jobs of up to `most` KiB over `rate` KiB per second, and `delay` seconds in each direction."""

    jobs: int = 160
    most: int = 400
    rate: int = 6_000
    delay: float = 0.02
    seconds: float = 60.0


@dataclass
class Outcome(Figures):
    """The figures of a trial, and the load of the link."""

    sent: float = 0.0
    """MiB of payloads."""
    unstarted: int = 0
    """Claims whose job did not start."""

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            **self.base_faults(),
            f"{self.unstarted} claims did not start their job, in {self.runs} runs and {self.kills} kills": (
                self.unstarted <= self.runs + self.kills * LOST_PER_KILL
            ),
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return f"slow link: {self.sent:.0f} MiB of payloads, {self.unstarted} claims did not start, {self.counts}"


@dataclass(frozen=True)
class LinkRole:
    """A process that forwards bytes between a loopback port and the port of the server. It writes its port to the
    journal.
    """

    port: int
    journal: Journal
    rate: float
    delay: float

    def __call__(self) -> None:
        """Forward until the process is killed."""
        run_loop(self._carry())

    async def _carry(self) -> None:
        async with SlowLink(self.port, rate=self.rate, delay=self.delay) as link:
            self.journal.write("link", link.port)
            await asyncio.Event().wait()


def slow_links(size: Size, seed: int = 0) -> Outcome:
    """Run on a new server, which only the parent reaches directly."""
    began, outcome = time.monotonic(), Outcome(seed)
    with open_workspace(unix=False) as workspace:
        port = _open_link(workspace, size, began + size.seconds)
        url = f"redis://127.0.0.1:{port}"
        # Workers are killed while the second half of the jobs is added, which takes a second or more at this rate.
        crew = Crew(workers=2, concurrency=CONCURRENCY, kill_every=0.4)
        trial = Trial(workspace, QUEUE, url, outcome, crew, began + size.seconds, near=workspace.url)
        specs = [_spec(trial, size, serial) for serial in range(size.jobs)]
        outcome.sent = sum(len(spec["payload"].get("filler", "")) for spec in specs) / KIB / KIB
        # Half of the jobs wait when the first worker starts, so that it can claim a job for each slot.
        trial.produce(specs[: size.jobs // 2], tasks=10)
        trial.continue_until(lambda: not trial.is_producing)
        trial.start()
        trial.produce(specs[size.jobs // 2 :], tasks=10)
        evidence = trial.finish()
        outcome.unstarted = sum(counts["active"] for counts in evidence.events.values()) - outcome.runs
    outcome.seconds = time.monotonic() - began
    return outcome


def _open_link(workspace: ServerWorkspace, size: Size, deadline: float) -> int:
    assert workspace.server.port
    workspace.children.fork(LinkRole(workspace.server.port, workspace.journal, size.rate * KIB, size.delay))
    while time.monotonic() < deadline:
        for line in read_lines(workspace.journal):
            if line.kind == "link":
                return int(line.words[0])
        workspace.children.reap(0.02)
    raise TimeoutError(f"the link was not opened:\n{workspace.complaints}")


def _spec(trial: Trial, size: Size, serial: int) -> Spec:
    draw = trial.random
    instructions = payload(draw.uniform(0.0, 0.2), failures=draw.choices((0, 1), (95, 5))[0])
    length = draw.choice((100, draw.randrange(size.most * KIB), size.most * KIB))
    instructions["filler"] = "x" * length
    return {"serial": serial, "job_id": None, "delay": None, "payload": instructions, "name": str(serial)}
