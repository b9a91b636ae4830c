"""The slots of a worker: which jobs are in hand, and how many more can start now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from glidemq_async.executors.protocol import Executor
from glidemq_async.worker.runs import Run, StopReason

Held: TypeAlias = tuple[str, str]
"""The id and the entry of a job in hand."""


class Slots:
    """At most `concurrency` runs at a time; a run takes its slot when it is claimed and frees it when it ends."""

    def __init__(self, concurrency: int, executor: Executor) -> None:
        self._concurrency = concurrency
        self._executor = executor
        self._runs: dict[str, Run] = {}
        self.all_free = asyncio.Event()
        """Set while no run is in hand."""
        self.all_free.set()

    def __len__(self) -> int:
        return len(self._runs)

    def free(self) -> int:
        """How many jobs can start now."""
        return max(0, self._concurrency - len(self._runs) - self._executor.occupied)

    def take(self, run: Run) -> None:
        """A run has been claimed."""
        self._runs[run.job.entry] = run
        self.all_free.clear()

    def give_back(self, run: Run) -> None:
        """A run has ended."""
        self._runs.pop(run.job.entry, None)
        if not self._runs:
            self.all_free.set()

    def holds(self, entry: str) -> bool:
        """Return whether a run in hand has this entry."""
        return entry in self._runs

    def shortest_lease(self, otherwise: float) -> float:
        """Return the shortest lease in hand, in seconds; `otherwise` is that of jobs without one of their own."""
        own = [run.job.options.lock_duration for run in self.runs() if run.job.has_options]
        return min([otherwise, *(lease for lease in own if lease is not None)])

    def runs(self) -> list[Run]:
        """The runs in hand. Safe from another thread."""
        while True:
            try:
                return list(self._runs.values())
            except RuntimeError:  # the dict grew while another thread listed it: list it again
                continue

    def stop_entries(self, entries: Iterable[str], reason: StopReason) -> None:
        """Stop the runs that hold these entries."""
        for entry in entries:
            if (run := self._runs.get(entry)) is not None:
                run.stop(reason)
