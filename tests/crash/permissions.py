"""Few permissions: the user of workers and producers may run the documented commands, and may use no channels."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.crash.roles import Spec, payload
from tests.crash.trial import Crew, Figures, Trial
from tests.crash.workspace import open_workspace

QUEUE = "permissions"
GUIDE: Final = Path(__file__).parents[2] / "docs" / "operating.md"
CHANNELS: Final = "&glide:*"


@dataclass(frozen=True)
class Size:
    """The number of jobs; `seconds` bounds the run."""

    jobs: int = 1_500
    seconds: float = 60.0


@dataclass
class Outcome(Figures):
    """The figures of a trial."""

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return f"a user without channels: {self.counts}"


def documented_rules() -> list[str]:
    """Return the rules of the user in the guide, without the channels."""
    found = re.search(r"^ACL SETUSER app on >secret (.+)$", GUIDE.read_text(), re.MULTILINE)
    assert found is not None, f"{GUIDE} does not define a user"
    rules = found[1].split()
    assert CHANNELS in rules
    return [rule for rule in rules if rule != CHANNELS]


def permissions(size: Size, seed: int = 0) -> Outcome:
    """Run on a new server whose administrator is the parent."""
    began, outcome = time.monotonic(), Outcome(seed)
    with open_workspace(unix=False) as workspace:
        asyncio.run(workspace.server.command("ACL", "SETUSER", "app", "reset", "on", ">secret", *documented_rules()))
        url = workspace.url.replace("://", "://app:secret@")
        crew = Crew(concurrency=20, poll=0.2, kill_every=0.6)
        trial = Trial(workspace, QUEUE, url, outcome, crew, began + size.seconds, near=workspace.url)
        trial.start()
        trial.produce([_spec(trial, serial) for serial in range(size.jobs)], tasks=10, pace=0.02)
        trial.finish()
    outcome.seconds = time.monotonic() - began
    return outcome


def _spec(trial: Trial, serial: int) -> Spec:
    draw = trial.random
    instructions = payload(draw.uniform(0.0, 0.2), failures=draw.choices((0, 1, 2), (90, 5, 5))[0])
    delay = draw.uniform(0.01, 0.5) if draw.random() < 0.1 else None
    return {"serial": serial, "job_id": None, "delay": delay, "payload": instructions, "name": str(serial)}
