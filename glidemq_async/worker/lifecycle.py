"""The life cycle of workers and pools: start, run until a stop is requested, close."""

from __future__ import annotations

import asyncio
import importlib
from abc import abstractmethod
from functools import partial

import anyio
from typing_extensions import override

from glidemq_async._internal.background import Background
from glidemq_async._internal.task_scope import TaskScope
from glidemq_async.errors import QueueClosed
from glidemq_async.worker.signals import stop_on_signals


class Runs(Background):
    """Base class for services that run until `stop()` or a signal."""

    def __init__(self, *, handle_signals: bool) -> None:
        # The first scope of anyio imports its backend, which takes 50 ms. Neither the start nor the shutdown of a
        # worker should wait for that, and a process that only adds jobs should not import it.
        importlib.import_module("anyio._backends._asyncio")
        self._handle_signals = handle_signals
        self._stop_requested = asyncio.Event()
        self._starting = asyncio.Lock()
        self._tasks = TaskScope()
        """The group of all tasks of this service, from the start until the end of the close."""
        self._cuts: set[asyncio.Timeout] = set()
        self._stop_cuts: set[asyncio.Timeout] = set()
        self._started = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, SIGTERM or SIGINT. Then let running jobs end, and release the others.

        A second signal releases the running jobs immediately, like `stop(immediately=True)`. A start that is not
        complete when the stop is requested is cancelled.

        With `until_empty` it returns when no job is waiting. It waits for jobs that are held back by a limit or a
        paused key, for retries of its own jobs, and for jobs of workers that may have died, until their leases expire.
        It does not wait for delayed jobs, for jobs of a worker that has just renewed its leases, or while the queue is
        paused. Raises what `start` raises, and ExecutorError when an executor cannot continue.
        """
        with stop_on_signals(self.stop if self._handle_signals else None, partial(self.stop, immediately=True)):
            try:
                if await self._start_unless_stopped():
                    await (self._run_until_empty() if until_empty else self._stop_requested.wait())
            finally:
                await self.close()
        if self._broken is not None:
            raise self._broken

    @property
    def broken(self) -> Exception | None:
        """The error after which no job can run any more, for example of a broken executor. `run` raises it."""
        return self._broken

    def _break_off(self, error: Exception) -> None:
        """Stop, and make `run` raise the error."""
        if self._broken is None:
            self._broken = error
            self.stop()

    def _break_off_with(self, part: Runs) -> None:
        """Also stop if `part` closes because it cannot continue. Pools register this method with their workers."""
        if part.broken is not None:
            self._break_off(part.broken)

    def stop(self, *, immediately: bool = False) -> None:
        """Make `run` shut down. Returns immediately.

        With `immediately` running jobs are cancelled and released instead of awaited, even if a shutdown is already in
        progress.
        """
        del immediately  # no jobs run here; subclasses use it
        self._stop_requested.set()
        _expire(self._stop_cuts)

    # -- starting -------------------------------------------------------------------------------------------------

    @override
    async def start(self) -> None:
        """Start working in the background. Does nothing if it has already started.

        Raises StorageUnavailable, IncompatibleQueueError, and OSError when the health port is in use. Raises
        QueueClosed after `close`, and when `close` is called during the start.
        """
        self._refuse_closed()
        async with self._starting:
            self._refuse_closed()
            if self._started:
                return
            try:
                await self._tasks.open()
                self._refuse_closed()
                await self._start_until_cut()
                self._started = True
            finally:
                if not self._started and self._closing is None:
                    self._tasks.end()

    async def _start_until_cut(self) -> None:
        # `bound` lets `close` cancel a start that is in progress, whatever it awaits. Without it the start would
        # continue after `close` has returned, and nothing would stop the jobs that it starts. It is a timeout of
        # asyncio, because a failed start awaits the undoing of its steps. A scope of anyio would cancel these too.
        bound = asyncio.timeout(None)
        self._cuts.add(bound)
        try:
            async with bound:
                await self._start()
        except TimeoutError:
            if not bound.expired():
                raise
            self._refuse_closed()
        finally:
            self._cuts.discard(bound)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise self._broken or QueueClosed(f"{self!r} is closed and cannot start; create a new one")

    @abstractmethod
    async def _start(self) -> None:
        """Start. Only one call runs at a time; it can be repeated after a failure.

        On an exception nothing keeps running.
        """

    async def _start_unless_stopped(self) -> bool:
        """Start. Return False if a stop was requested before the start was complete. A start may take long, or hang."""
        if self._stop_requested.is_set() and not self._closed:  # `start` itself refuses if it is closed
            return False
        bound = asyncio.timeout(None)
        self._stop_cuts.add(bound)
        try:
            async with bound:
                await self.start()
        except TimeoutError:
            if not bound.expired():
                raise
            return False
        finally:
            self._stop_cuts.discard(bound)
        return True

    # -- closing --------------------------------------------------------------------------------------------------

    @override
    async def close(self) -> None:
        """Stop claiming, wait up to `shutdown_timeout` for running jobs, release the others, disconnect. Idempotent.

        Cancels a start that is in progress, which then raises QueueClosed.
        """
        # Concurrent callers wait for the same close. Cancelling one of them does not cancel the close, and it stops
        # only that caller's wait. A cancelled scope of anyio is different: it cancels every further await of the task,
        # so a caller that is in one would return before the jobs are released. The shield makes it wait. The close
        # ends by itself, after `shutdown_timeout` at the latest.
        with anyio.CancelScope(shield=True):
            # A start that fails during this `open` ends the group again.
            while self._closing is None and not self._tasks.is_open:
                await self._tasks.open()
            await asyncio.shield(self._begin_closing())

    def _begin_closing(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._closed = True
            self._stop_requested.set()
            # Cancel the start of `run` first: `run` then returns normally. A start outside of `run` raises.
            _expire(self._stop_cuts)
            _expire(self._cuts)
            self._closing = self._tasks.start(self._close_started())
        return self._closing

    async def _close_started(self) -> None:
        try:
            # The cancelled start undoes its work before it releases the lock. Later starts are refused.
            async with self._starting:
                await self._close()
        finally:
            self._tasks.end()

    @abstractmethod
    async def _close(self) -> None:
        """Close. Called once, when no start is in progress."""

    @abstractmethod
    async def _run_until_empty(self) -> None: ...


def _expire(bounds: set[asyncio.Timeout]) -> None:
    now = asyncio.get_running_loop().time() if bounds else 0.0
    while bounds:
        bounds.pop().reschedule(now)
