"""Runs that lost their lease, from the end of the run until the store knows that the handler has ended.

The store keeps the ordering key and the slot of a removed job until then; see functions/stopping.lua.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from glidemq_async._internal.problems import problem_of
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.lease import Held
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import entry_of, has_options, run_options

MAX_REPORTED: Final = 20
"""Maximum number of runs that one call reports. Each of them can start the next job of an ordering key."""

WhenEnded: TypeAlias = Callable[[Job[Any, Any], Callable[[], None]], None]

_log = logging.getLogger(__name__)


class StoppingRuns:
    """Reports the end of each handler whose run lost its lease. `when_ended(job, call)` calls `call` at that end.

    A worker cannot distinguish a removed job from a job that another worker runs after a stall: the lease is gone in
    both cases. So it reports every such run, and the store ignores the runs that hold nothing.
    """

    def __init__(self, functions: Functions, worker: str, when_ended: WhenEnded) -> None:
        self._functions = functions
        self._worker = worker
        self._when_ended = when_ended
        # A new tuple for each change, because the lease thread reads it at any time.
        self._jobs: tuple[Job[Any, Any], ...] = ()
        self._ended: list[Job[Any, Any]] = []
        self._event = asyncio.Event()

    def leases(self) -> list[Held]:
        """Return the leases to renew, from any thread."""
        return [Held(job.id, entry_of(job)) for job in self._jobs]

    def shortest_lease(self, otherwise: float) -> float:
        """Return the shortest of these leases and `otherwise` in seconds, from any thread."""
        own = [run_options(job).lock_duration for job in self._jobs if has_options(job)]
        return min([otherwise, *(lease for lease in own if lease is not None)])

    def add(self, job: Job[Any, Any]) -> None:
        """Add the job of a run that has ended without an outcome. In a thread its handler may still execute."""
        self._jobs = (*self._jobs, job)
        self._when_ended(job, partial(self._on_end, job))

    def _on_end(self, job: Job[Any, Any]) -> None:
        self._ended.append(job)
        self._event.set()

    async def run(self) -> None:
        """Report ends until cancelled."""
        while True:
            await self._event.wait()
            self._event.clear()
            await self.report()

    async def report(self) -> None:
        """Report the ends that are not reported yet. If the store cannot be reached, the leases of the runs expire."""
        while self._ended:
            some = self._ended[:MAX_REPORTED]
            try:
                await self._functions.leases.end_runs(self._worker, [entry_of(job) for job in some])
            except GlideMQError as error:
                text = "could not report the end of %d runs; their leases will expire: %s"
                _log.warning(text, len(some), problem_of(error))
            # Remove the runs only after the reply. If the call is cancelled, the last report of the worker repeats it.
            # The repetition has no effect.
            del self._ended[: len(some)]
            self._jobs = tuple(job for job in self._jobs if job not in some)
