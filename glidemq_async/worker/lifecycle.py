"""The life cycle that workers and pools of them share: they start, run until they are told to stop, and close."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import partial

from typing_extensions import override

from glidemq_async._internal.background import Background
from glidemq_async.errors import QueueClosed
from glidemq_async.worker.signals import stop_on_signals


class Runs(Background):
    """Base class for services that run until `stop()` or a signal."""

    def __init__(self, *, handle_signals: bool) -> None:
        self._handle_signals = handle_signals
        self._stop_requested = asyncio.Event()
        self._starting = asyncio.Lock()
        self._cuts: set[asyncio.Timeout] = set()
        self._stop_cuts: set[asyncio.Timeout] = set()
        self._started = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self.broken: Exception | None = None
        """Why nothing can be run any more: an executor broke for good. `run` raises it."""

    async def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, SIGTERM or SIGINT; then let running jobs end and hand back what is left.

        A second signal hands back at once what still runs, as `stop(at_once=True)` does. What has not started yet when
        it is told to stop is cancelled.
        With `until_empty` it returns when no job waits any more. It waits for jobs that a limit or the pause of their
        key holds back, for retries of jobs that it ran, and for jobs whose worker may have died, until their leases
        end. It does not wait for delayed jobs, for jobs of a worker that has just renewed its leases, or while the
        queue is paused. Raises what `start` raises, and ExecutorError when an executor broke for good.
        """
        with stop_on_signals(self.stop if self._handle_signals else None, partial(self.stop, at_once=True)):
            try:
                if await self._start_unless_stopped():
                    await (self._run_until_empty() if until_empty else self._stop_requested.wait())
            finally:
                await asyncio.shield(self.close())
        if self.broken is not None:
            raise self.broken

    def break_off(self, error: Exception) -> None:
        """Stop, and let `run` raise the error. For executors that broke."""
        if self.broken is None:
            self.broken = error
            self.stop()

    def stop(self, *, at_once: bool = False) -> None:
        """Ask `run` to shut down; returns at once.

        With `at_once` what runs is cancelled and handed back instead of waited for, also while it shuts down already.
        """
        del at_once  # here nothing runs; who runs jobs says what that means
        self._stop_requested.set()
        _expire(self._stop_cuts)

    # -- starting -------------------------------------------------------------------------------------------------

    @override
    async def start(self) -> None:
        """Start working in the background; does nothing when it has started.

        Raises StorageUnavailable, IncompatibleQueueError, OSError when the health port is taken, and QueueClosed after
        `close`, also when `close` is called during the start.
        """
        self._refuse_closed()
        async with self._starting:
            self._refuse_closed()
            if self._started:
                return
            # The bound lets `close` end a start that is under way, wherever it waits. Without it the start would go on
            # after `close` has returned, and jobs would run that nothing stops.
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
            self._started = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise self.broken or QueueClosed(f"{self!r} is closed and cannot start; make a new one")

    @abstractmethod
    async def _start(self) -> None:
        """Start; called once at a time, and again after it failed. What it raises leaves nothing working."""

    async def _start_unless_stopped(self) -> bool:
        """Start; false when it was told to stop before or meanwhile. A start may take long, or hang."""
        if self._stop_requested.is_set() and not self._closed:  # what is closed is refused by its start
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
        """Stop claiming, let running jobs end for `shutdown_timeout`, hand back the rest, let go; idempotent.

        A start that is under way is cancelled, and raises QueueClosed.
        """
        # Whoever else closes meanwhile waits for the same end; cancelling one of them cuts nothing off.
        await asyncio.shield(self._begin_closing())

    def _begin_closing(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._closed = True
            self._stop_requested.set()
            # First those of `run`, which returns then; a start without a run raises.
            _expire(self._stop_cuts)
            _expire(self._cuts)
            self._closing = asyncio.create_task(self._close_started())
        return self._closing

    async def _close_started(self) -> None:
        # A start that was cut off gives back what it has taken before it releases the lock. Every later one is refused.
        async with self._starting:
            await self._close()

    @abstractmethod
    async def _close(self) -> None:
        """Close; called once, when no start is under way."""

    @abstractmethod
    async def _run_until_empty(self) -> None: ...


def _expire(bounds: set[asyncio.Timeout]) -> None:
    now = asyncio.get_running_loop().time() if bounds else 0.0
    while bounds:
        bounds.pop().reschedule(now)
