"""The Spark executor: a job's function runs in a thread of the driver, and its Spark work is the job's."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from glidemq_async.durations import to_ms
from glidemq_async.errors import ExecutorError
from glidemq_async.executors.calls import FunctionCall, is_coroutine_function
from glidemq_async.executors.daemon_threads import DaemonThreads
from glidemq_async.executors.deadlines import waiting
from glidemq_async.executors.protocol import Handler
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number
from glidemq_async.spark.driver.engine import Engine, Label
from glidemq_async.spark.driver.progress_reporter import ProgressReporter
from glidemq_async.spark.driver.spark_run import SparkRun

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import SparkSession

GRACE: Final = 10.0
PROGRESS_EVERY: Final = 1.0

_log = logging.getLogger(__name__)


class SparkExecutor:
    """Runs plain functions in threads of the Spark driver: `Worker("reports", build, executor=SparkExecutor(spark))`.

    The processor is a function of (spark, job), or of the job alone. A task asks for the session as for any other
    dependency: `spark: SparkSession = Depends(executor.session)`, with `@mq.task(executor=executor)`. At most `threads`
    run at a time; what a worker claims beyond that waits, and its timeout begins when it gets a thread. Workers of
    one event loop may share an executor, and executors a session, of Classic or of Connect.

    - Within the function the session is active in its thread; its Spark jobs have a job group and a tag of that run
      alone, the queue, name and id of the job as their description, and run in the fair scheduler's `pool`, by default
      the one named as the queue. The thread ends with the run, so nothing that is set for it reaches the next one.
    - Every `progress_interval` seconds (None: never) the tasks of its stages become `job.progress`: {"done", "known",
      "stages", "percent"}, which never fall. A function that tells progress of its own is left alone.
    - A revocation, a timeout, a lost lease or the end of the worker's `shutdown_timeout` sets `job.abort` and cancels
      the run's Spark work every 250 ms until the function has ended. The run counts as stopped then, whatever the
      function returns. It keeps its slot and its lease until the function has ended and no executor works for it any
      more, for `grace` seconds at most; after that it is given up: the cancelling goes on, and a function that still
      runs keeps its slot. `interrupt` lets a cancellation interrupt the threads of the tasks as well.
    - Errors of analysis and parsing fail the job for good, and so does work that somebody cancels in Spark itself. When
      the session cannot run anything any more (its JVM has gone, it was stopped), the worker stops: `Worker.run` raises
      ExecutorError, and the jobs in hand fail with it, those not begun go back without an attempt.

    Raises TypeError for anything but a session, and ValueError or TypeError for bad options.
    """

    runs_here: Final = True

    def __init__(
        self,
        spark: SparkSession,
        *,
        threads: int = 4,
        pool: str | None = None,
        progress_interval: float | timedelta | None = PROGRESS_EVERY,
        grace: float | timedelta = GRACE,
        interrupt: bool = True,
    ) -> None:
        self._engine = engine_of(spark, interrupt=interrupt)
        self._threads = whole_number("threads", threads, least=1)
        self._pool = pool
        self._interval = None
        if progress_interval is not None:
            self._interval = to_ms("progress_interval", progress_interval, allow_zero=False) / 1000
        self._grace = to_ms("grace", grace) / 1000
        self._freed: Callable[[], None] = lambda: None
        self._tell_broken: list[Callable[[Exception], None]] = []
        self._process = os.getpid()
        self._begin()

    def _begin(self) -> None:
        self._free = asyncio.Semaphore(self._threads)
        self._asking = DaemonThreads(self._threads + 1)
        self._given_up: set[SparkRun] = set()
        self._stopped = False

    def __repr__(self) -> str:
        return f"<SparkExecutor of {self._threads} threads>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SparkExecutor belongs to the process of its session and cannot be taken to another one; what runs in "
            "other processes opens a session of Spark Connect there: SparkSession.builder.remote(...)"
        )

    def session(self) -> SparkSession:
        """Return the session: the provider for tasks, `spark: SparkSession = Depends(executor.session)`."""
        return self._engine.session

    # -- the protocol ---------------------------------------------------------------------------------------------

    @property
    def occupied(self) -> int:
        """Slots of runs that were given up and whose function has not returned."""
        return len(self._given_up)

    @property
    def grace(self) -> float:
        """Seconds that a cancelled run may take to end."""
        return self._grace

    def check_handler(self, handler: Handler) -> None:
        """Raise TypeError for a coroutine function. What a function takes is seen when it is called."""
        if is_coroutine_function(handler):
            raise TypeError(
                f"{handler!r} is a coroutine function, and calls of Spark block: they would hold up the worker's event "
                "loop. Make it a plain function; what must be awaited it reaches through .sync"
            )

    def when_broken(self, tell: Callable[[Exception], None]) -> None:
        """Call `tell` in the loop when nothing can be run in the session any more."""
        self._tell_broken.append(tell)

    async def start(self, freed: Callable[[], None]) -> None:
        """Check that the session can run something. Raises ExecutorError when it was stopped."""
        if self._stopped:
            self._begin()
        self._freed = freed
        self._check_process()
        try:
            await self._ask(self._engine.open)
        except BaseException:  # cancelled, too: nobody stops an executor that did not start
            self._asking.stop()
            self._stopped = True
            raise

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Call the handler in a driver thread and wait for it, at most `timeout` seconds (then TimeoutError)."""
        self._check_process()
        free, given_up = self._free, self._given_up
        with waiting():
            await free.acquire()
        function = self._of_job(handler)
        # The signal must exist before the thread looks for it: making it is not thread-safe.
        _ = job.abort
        context = contextvars.copy_context()
        run = SparkRun(self._engine, self._label(job), lambda: context.run(_call, function, job))
        run.start()
        try:
            return await self._driven(run, job, timeout)
        finally:
            if run not in given_up:
                free.release()
                run.forget()
            if run.broken is not None:
                for tell in self._tell_broken:
                    tell(run.broken)

    def _of_job(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(handler, FunctionCall) or _arity(handler) == 1:
            return handler
        return partial(handler, self._engine.session)

    async def stop(self, grace: float) -> None:
        """Wait up to `grace` seconds for functions that were given up, then leave them behind."""
        waiting = [asyncio.wrap_future(run.future) for run in self._given_up]
        if waiting and grace > 0:
            await asyncio.wait(waiting, timeout=grace)
        self._engine.close()
        self._asking.stop()
        self._stopped = True

    # -- one run --------------------------------------------------------------------------------------------------

    def _label(self, job: Job[Any, Any]) -> Label:
        return Label(
            tag=f"glidemq-{uuid.uuid4().hex[:16]}",
            description=f"{job.queue}: {job.name} {job.id}",
            pool=self._pool or job.queue,
        )

    async def _driven(self, run: SparkRun, job: Job[Any, Any], timeout: float | None) -> object:
        ended = asyncio.wrap_future(run.future)
        telling = ProgressReporter(job, partial(self._ask, run.progress), self._interval)
        try:
            done, _ = await asyncio.wait([ended], timeout=timeout)
            if not done:
                job.abort.set("timeout")
                await self._end(run, ended, job)
                raise TimeoutError(f"the run took longer than its timeout of {timeout or 0:g} s")
            await telling.finish()
        except asyncio.CancelledError:
            job.abort.set("cancelled")
            await self._end(run, ended, job)
            raise
        finally:
            telling.stop()
        return ended.result()

    async def _end(self, run: SparkRun, ended: asyncio.Future[object], job: Job[Any, Any]) -> None:
        """Cancel the work and wait for the thread and for the executors, within the grace."""
        run.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        try:
            await asyncio.wait([ended], timeout=self._grace)
        finally:
            if not ended.done():
                self._give_up(run, ended, job)
        if not ended.done():
            return
        if not ended.cancelled():
            ended.exception()  # what it was does not matter any more
        quiet = False
        with suppress(Exception):
            quiet = await self._ask(partial(run.wait_until_quiet, max(0.0, deadline - loop.time())))
        if not quiet:
            _log.warning("job %s was cancelled, and executors of Spark may still work for it", job.id)

    def _give_up(self, run: SparkRun, ended: asyncio.Future[object], job: Job[Any, Any]) -> None:
        self._given_up.add(run)
        # The thread may outlive the loop: nothing may be called there then.
        ended.cancel()
        loop, free = asyncio.get_running_loop(), self._free
        run.future.add_done_callback(lambda _: _in_loop(loop, partial(self._returned, run, free)))
        _log.warning("job %s: its function ignores job.abort and keeps its slot until it returns", job.id)

    def _returned(self, run: SparkRun, free: asyncio.Semaphore) -> None:
        self._given_up.discard(run)
        run.forget()
        free.release()
        self._freed()

    async def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask Spark something outside of the event loop."""
        return await asyncio.wrap_future(self._asking.submit(question))

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ExecutorError(
                "this SparkExecutor was made in another process, and a forked child cannot use its parent's Spark "
                "session: start worker processes before the session is made, or use Spark Connect in each"
            )


def engine_of(spark: SparkSession, *, interrupt: bool) -> Engine:
    """Return the engine of a session; `interrupt`: see SparkExecutor. Raises TypeError for anything else."""
    if hasattr(spark, "_jsparkSession"):
        from glidemq_async.spark.driver.classic import ClassicEngine

        return ClassicEngine(spark, interrupt=interrupt)
    if hasattr(spark, "interruptTag") and hasattr(spark, "client"):
        from glidemq_async.spark.driver.connect import ConnectEngine

        return ConnectEngine(spark)
    raise TypeError(f"a Spark session is needed, got {spark!r}: pass what SparkSession.builder.getOrCreate() returned")


def _arity(handler: Handler) -> int:
    """Whether a handler takes the job, 1, or (spark, job), 2; of two ways the job alone. Raises TypeError."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a built-in: it has none
        return 1
    for arity in (1, 2):
        with suppress(TypeError):
            signature.bind(*range(arity))
            return arity
    raise TypeError(f"{handler!r} must be a function of (spark, job), or of the job alone, found {signature}")


def _call(function: Callable[..., Any], job: Job[Any, Any]) -> object:
    value = function(job)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the processor is a plain function that returned a coroutine: calls of Spark block")
    return value


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # The thread may outlive the loop, and then nobody needs to know.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
