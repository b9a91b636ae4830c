"""The thread executor: plain functions run in a pool of threads, so that they do not block the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from glidemq_async._internal.forgotten_calls import call_plainly
from glidemq_async.executors.daemon_threads import DaemonThreads
from glidemq_async.executors.deadlines import waiting
from glidemq_async.executors.protocol import Handler
from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.job import Job

_log = logging.getLogger(__name__)


class ThreadExecutor:
    """Runs the handler in one of at most `threads` threads, with the context variables of the run.

    Further jobs wait for a thread, and their timeout begins when they get one. `job.sync` has the methods of the job
    for plain functions.

    A thread cannot be interrupted. On a timeout or an abort, `job.abort` is set and the run is abandoned and reported.
    Its thread keeps its slot until the function returns, and the result is discarded.
    """

    runs_here: Final = True

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads!r}")
        self._threads = threads
        self._freed: Callable[[], None] = lambda: None
        self._renew()

    def _renew(self) -> None:
        self._pool = DaemonThreads(self._threads)
        self._limiter = anyio.CapacityLimiter(self._threads)
        self._given_up: dict[Future[object], Job[Any, Any]] = {}
        self._stopped = False

    @property
    def occupied(self) -> int:
        """Number of threads that still run a function whose run was abandoned."""
        return len(self._given_up)

    async def start(self, freed: Callable[[], None]) -> None:
        """Prepare the pool; threads start when they are needed. The executor can be used again in another loop."""
        if self._stopped:
            self._renew()
        self._freed = freed

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Call the handler in a thread and wait for it, at most `timeout` seconds (then TimeoutError)."""
        # A run and its call in the thread end independently. The place in the limiter follows the call: an abandoned
        # call still occupies its thread, and a second call in its place would exceed `threads`. The cases at a timeout
        # or a cancellation:
        #
        # - It waits for a place: it owns nothing yet.
        # - Its call is queued: `cancel` succeeds, the function never runs, and the place is free.
        # - The function runs: `_give_up` notes the call, and its end releases the place later, in the event loop.
        # - The function returned in the same moment: no thread is left behind, so nothing has to be given up.
        limiter, given_up = self._limiter, self._given_up
        # The place belongs to the call and not to this task, because the call of an abandoned run keeps it.
        call = object()
        await _acquire(limiter, call)
        # The signal must exist before the thread reads it: creating it is not thread-safe.
        abort = job.abort
        context = contextvars.copy_context()
        try:
            future = self._pool.submit(lambda: context.run(call_plainly, handler, job))
        except BaseException:  # no thread can be started, so another run may use this place
            limiter.release_on_behalf_of(call)
            raise
        try:
            async with asyncio.timeout(timeout):
                return _plain(await asyncio.wrap_future(future))
        except (TimeoutError, asyncio.CancelledError) as error:
            if future.done() and not future.cancelled():
                raise
            # The signal is all that the thread can notice, so it is set even though this run has lost its result
            # already.
            set_abort(abort, "timeout" if isinstance(error, TimeoutError) else "cancelled")
            self._give_up(future, job, call)
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"the run took longer than its timeout of {timeout:g} s") from error
            raise
        finally:
            if future not in given_up:
                limiter.release_on_behalf_of(call)

    def _give_up(self, future: Future[object], job: Job[Any, Any], call: object) -> None:
        # wrap_future has already tried to cancel it. A call that had not begun never runs.
        if future.cancelled() or future.cancel():
            return
        self._given_up[future] = job
        loop, release = asyncio.get_running_loop(), partial(self._limiter.release_on_behalf_of, call)
        # Callbacks run in the order in which they were added, so this one comes before the callbacks of `when_ended`.
        future.add_done_callback(lambda done: _in_loop(loop, partial(self._returned, done, release)))
        _log.warning("job %s: its thread cannot be interrupted and keeps its slot until it returns", job.id)

    def _returned(self, future: Future[object], release: Callable[[], None]) -> None:
        self._given_up.pop(future, None)
        release()
        self._freed()

    def when_ended(self, job: Job[Any, Any], call: Callable[[], None]) -> bool:
        """Call `call` when the thread of an abandoned run has returned. Return False if there is none for this job."""
        future = next((future for future, of in self._given_up.items() if of is job), None)
        if future is None:
            return False
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _in_loop(loop, call))
        return True

    async def stop(self, grace: float) -> None:
        """Wait up to `grace` seconds for the threads of abandoned runs, then leave them behind."""
        waiting = [asyncio.wrap_future(future) for future in self._given_up]
        if waiting and grace > 0:
            await asyncio.wait(waiting, timeout=grace)
        self._pool.stop()
        self._stopped = True


async def _acquire(limiter: anyio.CapacityLimiter, call: object) -> None:
    # Without a wait, because the waiting form yields to the event loop even if a place is free.
    try:
        limiter.acquire_on_behalf_of_nowait(call)
    except anyio.WouldBlock:
        with waiting():
            await limiter.acquire_on_behalf_of(call)


def _plain(value: object) -> object:
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the processor is a plain function that returned a coroutine; pass a coroutine function")
    return value


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # The thread may outlive the loop. Its result then has no receiver.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
