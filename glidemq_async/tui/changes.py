"""The changes that the terminal view can make, each with a preview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from glidemq_async.stored.record import FINAL
from glidemq_async.tui.source import JobAction, JobLine, TopSource, jobs

WORDS: Final[dict[JobAction, str]] = {
    "retry": "Run again",
    "cancel": "Cancel",
    "promote": "Start now",
    "delete": "Delete",
}


@dataclass(frozen=True, slots=True)
class JobChange:
    """A change of jobs. `jobs` are the ones that it applies to, and `refused` counts the others by their state."""

    action: JobAction
    jobs: tuple[JobLine, ...]
    refused: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, action: JobAction, chosen: Sequence[JobLine]) -> JobChange:
        """Return the change of those jobs whose state permits it."""
        permitted = tuple(job for job in chosen if _permits(action, job.state))
        counts: dict[str, int] = {}
        for job in chosen:
            if job not in permitted:
                counts[job.state] = counts.get(job.state, 0) + 1
        return cls(action, permitted, tuple(counts.items()))

    @property
    def title(self) -> str:
        """The question of the dialog."""
        return f"{WORDS[self.action]}: {jobs(len(self.jobs))}"

    @property
    def lines(self) -> list[str]:
        """The lines below the title of the dialog."""
        shown = [f"{job.queue} {job.id}  {job.name}  {job.state}" for job in self.jobs[:5]]
        more = [f"and {len(self.jobs) - 5} more"] if len(self.jobs) > 5 else []
        refused = [f"not changed: {count} {state}" for state, count in self.refused]
        return [*shown, *more, *refused]

    @property
    def is_empty(self) -> bool:
        """True if it changes nothing."""
        return not self.jobs

    async def make(self, source: TopSource, reason: str) -> str:
        """Make the change. Return what was done, and raise the first error."""
        for job in self.jobs:
            await source.change_job(self.action, job, reason)
        return f"{self.action}: {jobs(len(self.jobs))}"


@dataclass(frozen=True, slots=True)
class PauseChange:
    """The beginning or the end of the pause of a queue."""

    queue: str
    is_paused: bool
    waiting: int
    is_empty: bool = False

    @property
    def title(self) -> str:
        """The question of the dialog."""
        return f"{'Resume' if self.is_paused else 'Pause'} queue {self.queue}"

    @property
    def lines(self) -> list[str]:
        """The lines below the title of the dialog."""
        return [f"{jobs(self.waiting)} wait in it. Running jobs continue."]

    async def make(self, source: TopSource, reason: str) -> str:
        """Make the change, and return what was done."""
        await source.set_paused(self.queue, reason, paused=not self.is_paused)
        return f"{self.queue} is {'running' if self.is_paused else 'paused'}"


def _permits(action: JobAction, state: str) -> bool:
    if action == "retry":
        return state == "failed"
    if action == "promote":
        return state == "delayed"
    return action == "delete" or state not in FINAL
