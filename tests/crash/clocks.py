"""Clock jumps: the server's clock jumps forward and back while jobs run, wait and are retried, and workers die."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from tests.crash.queues import shift_clock
from tests.crash.roles import AddOptions, Spec, payload
from tests.crash.trial import Crew, Figures, Trial
from tests.crash.workspace import open_workspace

QUEUE = "clocks"
MAGNITUDES = (0.3, 1.5, 7.0, 61.0, 3_700.0, 90_000.0)
"""The lengths of the jumps in seconds: below and above a lease, an hour, a day."""
MOST_BETWEEN_STARTS = 10.0
"""The longest time in seconds without a start. A longer time means that a job waited for a clock that was set back."""


@dataclass(frozen=True)
class Size:
    """The number of jumps; `seconds` bounds the run."""

    jumps: int = 30
    jobs: int = 2_000
    seconds: float = 60.0


@dataclass
class Outcome(Figures):
    """The figures of a trial and the number of jumps."""

    forward: int = 0
    back: int = 0

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            **self.base_faults(),
            "the clock did not jump in both directions": self.forward > 0 and self.back > 0,
            f"no job started for {self.longest_gap:.1f} s": self.longest_gap <= MOST_BETWEEN_STARTS,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return f"clock jumps: {self.forward} forward, {self.back} back, {self.counts}"


def clocks(size: Size, seed: int = 0) -> Outcome:
    """Run on a server whose library has a movable clock."""
    began, outcome = time.monotonic(), Outcome(seed)
    with open_workspace() as workspace:
        trial = Trial(workspace, QUEUE, workspace.url, outcome, Crew(lease=2.0), began + size.seconds)
        trial.start()
        # All jumps must happen during work, so the jobs last as long as the jumps.
        share, shift, farthest = size.jobs // size.jumps + 1, 0.0, 0.0
        for jump, distance in enumerate(distances(trial.random, size.jumps)):
            trial.produce([_spec(trial, serial) for serial in range(jump * share, (jump + 1) * share)])
            trial.await_first_start()
            trial.continue_for(trial.random.uniform(0.1, 0.4))
            outcome.forward += distance > 0
            outcome.back += distance < 0
            shift += distance
            farthest = max(farthest, shift)
            asyncio.run(shift_clock(workspace.url, QUEUE, shift))
        # A due time, such as the end of a delay, does not move when the clock is set back. So the clock must reach the
        # last due time.
        asyncio.run(shift_clock(workspace.url, QUEUE, farthest + 5))
        trial.finish()
    outcome.seconds = time.monotonic() - began
    return outcome


def distances(draw: random.Random, count: int) -> list[float]:
    """Draw the jumps in seconds. Of two successive jumps one goes forward and one goes back, in a random order."""
    directions = [direction for _ in range(0, count, 2) for direction in draw.sample((-1, 1), 2)]
    return [draw.choice(MAGNITUDES) * direction for direction in directions[:count]]


def _spec(trial: Trial, serial: int) -> Spec:
    draw = trial.random
    sleep = draw.choices((0.0, draw.uniform(0.01, 0.1), draw.uniform(0.3, 3.0)), (50, 45, 5))[0]
    instructions = payload(
        sleep,
        failures=draw.choices((0, 1, 2), (90, 5, 5))[0],
        later=0.2 if draw.random() < 0.05 else 0.0,
        met=0.1 if draw.random() < 0.01 else 0.0,
    )
    choices: list[AddOptions] = [{}, {}, {"priority": 2}, {"lifo": True}, {"key": f"k{draw.randrange(20)}"}]
    options = draw.choice(choices)
    delay = draw.uniform(0.01, 1.0) if draw.random() < 0.2 else None
    return {
        "serial": serial,
        "job_id": None,
        "delay": delay,
        "payload": instructions,
        "name": str(serial),
        "options": options,
    }
