"""Poison: jobs that kill their process, among good ones. Only the poison jobs fail, after the permitted number of
stalls.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field

from tests.crash.checker import read_events, read_final_state
from tests.crash.queues import add_all, counts_of, pause
from tests.crash.roles import ReaderRole, Spec, WorkerRole, payload
from tests.crash.workspace import ServerWorkspace, open_workspace

QUEUE = "poison"
MAX_STALLED = 2


@dataclass(frozen=True)
class Size:
    """The number of jobs of each kind; `seconds` bounds the run."""

    poison: int = 6
    good: int = 600
    seconds: float = 40.0


@dataclass
class Outcome:
    """The figures of the run."""

    poison: int
    good: int
    deaths: int = 0
    stalls: list[int] = field(default_factory=list[int])
    stalls_in_events: list[int] = field(default_factory=list[int])
    reasons: list[str | None] = field(default_factory=list[str | None])
    good_completed: int = 0
    good_stalled: int = 0
    findings: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            f"a poison must stall {MAX_STALLED + 1} times; stored {self.stalls}, events {self.stalls_in_events}": set(
                self.stalls + self.stalls_in_events
            )
            == {MAX_STALLED + 1},
            f'poison must fail as "stalled", but failed as {self.reasons}': set(self.reasons) == {"stalled"},
            f"{self.good - self.good_completed} good jobs did not complete": self.good_completed == self.good,
            f"the poison killed only {self.deaths} workers": self.deaths > MAX_STALLED,
            f"the integrity check found {self.findings}": not self.findings,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"poison: {self.poison} poison jobs killed {self.deaths} workers, "
            f"stalls of each {sorted(set(self.stalls))}; {self.good_completed} of {self.good} good jobs completed, "
            f"{self.good_stalled} of them had stalled"
        )


def poison(size: Size, seed: int = 0) -> Outcome:
    """Run workers until the poison has failed and the good jobs are done."""
    began = time.monotonic()
    outcome = Outcome(size.poison, size.good)
    with open_workspace() as workspace:
        every = (size.good + size.poison) // size.poison
        specs = [
            _spec(number, poisonous=number % every == every // 2) for number in range(1, size.good + size.poison + 1)
        ]
        asyncio.run(add_all(workspace.url, QUEUE, specs))
        events = workspace.directory / "events"
        reader = workspace.children.fork(ReaderRole(workspace.url, QUEUE, events))
        outcome.deaths = _work_off(workspace, reader, began + size.seconds)
        asyncio.run(pause(workspace.url, QUEUE))
        workspace.children.wait_for(reader, 10)
        counts, final_state = read_events(events), asyncio.run(read_final_state(workspace.url, QUEUE))
        for spec in specs:
            job_id = str(spec["job_id"])
            ended = final_state.ended[job_id]
            if spec["payload"]["poison"]:
                outcome.stalls.append(ended.stalls)
                outcome.stalls_in_events.append(counts[job_id]["stalled"])
                outcome.reasons.append(ended.reason)
            else:
                outcome.good_completed += ended.state == "completed"
                outcome.good_stalled += ended.stalls > 0
        outcome.findings = [str(finding) for finding in final_state.findings]
    outcome.seconds = time.monotonic() - began
    return outcome


def _spec(number: int, *, poisonous: bool) -> Spec:
    # The good jobs end long before a poison job kills its worker, so no good job shares every stall of a poison job.
    instructions = payload(0.3, poison=True) if poisonous else payload(0.01)
    return {
        "serial": number,
        "job_id": f"{'poison' if poisonous else 'good'}-{number}",
        "delay": None,
        "payload": instructions,
    }


def _work_off(workspace: ServerWorkspace, reader: int, deadline: float) -> int:
    role = WorkerRole(workspace.url, QUEUE, workspace.journal, concurrency=10, max_stalled=MAX_STALLED)
    workers: set[int] = set()
    deaths = 0
    while any(asyncio.run(counts_of(workspace.url, QUEUE)).values()):
        while len(workers) < 3:
            workers.add(workspace.children.fork(role))
        for ended in workspace.children.reap(0.1):
            workers.discard(ended.pid)
            deaths += ended.status == -signal.SIGKILL
            if ended.pid == reader or ended.status != -signal.SIGKILL:
                raise RuntimeError(f"a child ended with {ended.status}:\n{workspace.complaints}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done in time: {asyncio.run(counts_of(workspace.url, QUEUE))}")
    return deaths
