"""The slots of a worker: the current runs, and the number of jobs that can start now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from glidemq_async.executors.protocol import Executor, when_ended
from glidemq_async.jobs.job import Job
from glidemq_async.worker.runs import Run, StopReason


class Slots:
    """Allows `concurrency` runs at a time. A run takes a slot when it is claimed and frees it when it ends."""

    def __init__(self, concurrency: int, executor: Executor) -> None:
        self.most = concurrency
        """Maximum number of runs at the same time."""
        self._executor = executor
        self._claim: list[Run] = []
        """The current runs while they are the runs of one direct claim, of which none has ended."""
        self._runs: dict[str, Run] = {}
        """The current runs by their entries, otherwise."""
        self.all_free = asyncio.Event()
        """Set while there are no runs."""
        self.all_free.set()

    def __len__(self) -> int:
        return len(self._claim) or len(self._runs)

    def free(self) -> int:
        """Return the number of jobs that can start now."""
        # Not by `len(self)`: an idle worker needs a microsecond for each call of Python code.
        free = self.most - (len(self._claim) or len(self._runs)) - self._executor.occupied
        return max(0, free)

    def take(self, runs: list[Run], *, are_distinct: bool = False) -> list[Run]:
        """Take slots for claimed runs. Return the runs that got one. A run gets none if a current run has its entry.

        `are_distinct`: no two of these runs have the same entry. The caller does not change the list afterwards.
        """
        if are_distinct and runs and not len(self):
            self.all_free.clear()
            self._claim = runs
            return runs
        current, taken = self._by_entry(), {run.entry: run for run in runs}
        if len(taken) < len(runs) or not current.keys().isdisjoint(taken):
            taken = {entry: run for entry, run in taken.items() if entry not in current}
            runs = list(taken.values())
        if runs:
            self.all_free.clear()
        if current:
            current.update(taken)
        else:
            self._runs = taken
        return runs

    def take_one(self, run: Run) -> int | None:
        """Take a slot for one claimed run. Return the number of slots that are free then, None if it got no slot."""
        runs = self._by_entry() if self._claim else self._runs
        free = self.most - len(runs) - self._executor.occupied - 1
        if free < 0 or run.entry in runs:
            return None
        self.all_free.clear()
        runs[run.entry] = run
        return free

    def release(self, ended: list[Run]) -> None:
        """Free the slots of runs that have ended."""
        if len(ended) == (len(self._claim) or len(self._runs)):  # these are all current runs
            self._claim = []
            self._runs.clear()
        else:
            runs = self._by_entry()
            for run in ended:
                runs.pop(run.entry, None)
        if not self._runs:
            self.all_free.set()

    def _by_entry(self) -> dict[str, Run]:
        """Return the current runs by their entries."""
        if self._claim:
            # In this order: the lease thread must find each run at any time. It may find a run twice.
            self._runs = {run.entry: run for run in self._claim}
            self._claim = []
        return self._runs

    def when_ended(self, job: Job[Any, Any], call: Callable[[], None]) -> None:
        """Call `call` once the handler of an abandoned run has ended. Calls it immediately if no handler is running."""
        when_ended(self._executor, job, call)

    def shortest_lease(self, otherwise: float) -> float:
        """Return the shortest lease of the current runs in seconds.

        `otherwise` is the lease of jobs without their own.
        """
        own = [run.options.lock_duration for run in self.runs() if run.options is not None]
        return min([otherwise, *(lease for lease in own if lease is not None)])

    def runs(self) -> list[Run]:
        """Return the current runs. Safe in any thread."""
        # The lease thread calls this while the loop adds and removes runs. `list` of a dict's values usually runs
        # without a switch of threads, but that is a detail of CPython. If the dict changes its size in between, Python
        # raises, and the list is made again. A lock would cost every claim and every end of a run.
        while True:
            try:
                return self._claim + list(self._runs.values())
            except RuntimeError:
                continue

    def stop_entries(self, entries: Iterable[str], reason: StopReason) -> bool:
        """Stop the runs with these entries. Return whether all of them have a slot."""
        found = True
        for entry in entries:
            if (run := self._by_entry().get(entry)) is not None:
                run.stop(reason)
            else:
                found = False
        return found
