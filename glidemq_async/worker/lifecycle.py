"""What workers and pools of them share: they start, run until they are told to stop, and close."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import partial

from glidemq_async.background import Background
from glidemq_async.worker.signals import stop_on_signals


class Runs(Background):
    """What is also run to its end, which `stop` and signals bring about."""

    def __init__(self, *, handle_signals: bool) -> None:
        self._handle_signals = handle_signals
        self._stop_requested = asyncio.Event()
        self._start_bound: asyncio.Timeout | None = None
        self._closed = False
        self.broken: Exception | None = None
        """Why nothing can be run any more: an executor broke for good. `run` raises it."""

    async def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, SIGTERM or SIGINT; then let running jobs end and hand back what is left.

        A second signal hands back at once what still runs, as `stop(at_once=True)` does. What has not started yet when
        it is told to stop is cancelled.
        With `until_empty` it returns when no job waits any more: those that a limit or the pause of their key holds
        back are waited for, and so are the retries of jobs it ran; delayed jobs are left alone, and so is a queue that
        is paused. Raises what `start` raises, and ExecutorError when an executor broke for good.
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
        if self._start_bound is not None:
            self._start_bound.reschedule(asyncio.get_running_loop().time())
            self._start_bound = None

    async def _start_unless_stopped(self) -> bool:
        """Start; false when it was told to stop before or meanwhile. A start may take long, or hang."""
        if self._stop_requested.is_set() and not self._closed:  # what is closed is refused by its start
            return False
        bound = asyncio.timeout(None)
        try:
            async with bound:
                self._start_bound = bound
                await self.start()
        except TimeoutError:
            if not bound.expired():
                raise
            return False
        finally:
            self._start_bound = None
        return True

    @abstractmethod
    async def _run_until_empty(self) -> None: ...
