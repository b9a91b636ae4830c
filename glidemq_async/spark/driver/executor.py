"""`SparkExecutor`: run handlers in threads of the Spark driver, and control their Spark work with the job."""

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
from glidemq_async.jobs.abort import set_abort
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

    The handler is a function of (spark, job), or of the job alone. A task declares the session as a dependency,
    `spark: SparkSession = Depends(executor.session)`, with `@mq.task(executor=executor)`. At most `threads` runs
    execute at the same time. Further claimed jobs wait, and their timeout begins when they get a thread. Workers of one
    event loop may share an executor, and executors may share a Classic or Connect session.

    - In the function the session is active. Its Spark jobs have a separate job group and tag, the queue, name and id of
      the job as description, and the fair scheduler's `pool` (by default the name of the queue). Each run has a new
      thread, so settings for the thread do not reach the next run.
    - Every `progress_interval` seconds (None: never) the tasks of the stages become `job.progress`: {"done", "known",
      "stages", "percent"}. These numbers never decrease. Progress that the function reports itself is not overwritten.
    - A revocation, a timeout, a lost lease or the end of the worker's `shutdown_timeout` sets `job.abort` and cancels
      the run's Spark work every 250 ms until the function has ended. The run then counts as stopped, whatever the
      function returns. It keeps its slot and its lease until the function has ended and no Spark executor works for it,
      for at most `grace` seconds. After that the run is abandoned: cancelling continues, and a function that still runs
      keeps its slot. With `interrupt` a cancellation also interrupts the threads of the tasks.
    - Errors of analysis and parsing fail the job permanently, and so does a cancellation in Spark itself.
    - If the session cannot run any more jobs (its JVM died, or it was stopped), the worker stops and `Worker.run`
    raises
      ExecutorError. Running jobs fail with it. Claimed jobs that have not begun are released without an attempt.

    Raises TypeError if `spark` is not a session, and ValueError or TypeError for bad options.
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
        self._report_broken: Callable[[Exception], None] = lambda _: None
        self._process = os.getpid()
        self._begin()

    def _begin(self) -> None:
        self._slots = asyncio.Semaphore(self._threads)
        self._spark_threads = DaemonThreads(self._threads + 1)
        self._abandoned: dict[SparkRun, Job[Any, Any]] = {}
        self._stopped = False

    def __repr__(self) -> str:
        return f"<SparkExecutor of {self._threads} threads>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SparkExecutor cannot be pickled, because its session belongs to this process; open a session of Spark "
            "Connect in the other process instead: SparkSession.builder.remote(...)"
        )

    def session(self) -> SparkSession:
        """Return the session. It is a dependency of tasks: `spark: SparkSession = Depends(executor.session)`."""
        return self._engine.session

    # -- the protocol ---------------------------------------------------------------------------------------------

    @property
    def occupied(self) -> int:
        """Number of slots of abandoned runs whose function has not returned."""
        return len(self._abandoned)

    @property
    def grace(self) -> float:
        """Maximum duration of the end of a cancelled run, in seconds."""
        return self._grace

    def check_handler(self, handler: Handler) -> None:
        """Raise TypeError for a coroutine function. The parameters are checked when the function is called."""
        if is_coroutine_function(handler):
            raise TypeError(
                f"{handler!r} is a coroutine function, but calls of Spark would block the worker's event loop; make it "
                "a plain function, and use .sync for objects of this library"
            )

    def when_broken(self, report: Callable[[Exception], None]) -> None:
        """Call this callback in the event loop when the session cannot run any more jobs; see `MayBreak`."""
        self._report_broken = report

    async def start(self, freed: Callable[[], None]) -> None:
        """Check that the session can run Spark jobs. Raises ExecutorError if it was stopped."""
        if self._stopped:
            self._begin()
        self._freed = freed
        self._check_process()
        try:
            await self._in_thread(self._engine.open)
        except BaseException:  # also a cancellation: the worker does not stop an executor that did not start
            self._spark_threads.stop()
            self._stopped = True
            raise

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Call the handler in a driver thread and wait for it. Raises TimeoutError after `timeout` seconds."""
        self._check_process()
        slots, abandoned = self._slots, self._abandoned
        # Bind before a slot is taken: this raises TypeError for a handler with other parameters.
        function = self._bind_session(handler)
        with waiting():
            await slots.acquire()
        # Create the abort signal here. It is created on first use, which is not thread-safe, and the thread uses it.
        _ = job.abort
        # The function sees the context variables of the worker, for example the current trace, although it runs in a
        # thread that is not created by asyncio.
        context = contextvars.copy_context()
        run = SparkRun(self._engine, self._label(job), lambda: context.run(_call, function, job))
        try:
            run.start()
            return await self._wait_for(run, job, timeout)
        finally:
            # An abandoned run keeps its slot until its function returns; `_returned` frees it then.
            if run not in abandoned:
                slots.release()
                run.forget()
            if run.broken is not None:
                self._report_broken(run.broken)

    def _bind_session(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(handler, FunctionCall) or _arity(handler) == 1:
            return handler
        return partial(handler, self._engine.session)

    def when_ended(self, job: Job[Any, Any], call: Callable[[], None]) -> bool:
        """Call `call` when the function of an abandoned run has returned. Return False if there is none."""
        run = next((run for run, of in self._abandoned.items() if of is job), None)
        if run is None:
            return False
        loop = asyncio.get_running_loop()
        run.future.add_done_callback(lambda _: _in_loop(loop, call))
        return True

    async def stop(self, grace: float) -> None:
        """Wait up to `grace` seconds for the functions of abandoned runs."""
        waiting = [asyncio.wrap_future(run.future) for run in self._abandoned]
        if waiting and grace > 0:
            await asyncio.wait(waiting, timeout=grace)
        self._engine.close()
        self._spark_threads.stop()
        self._stopped = True

    # -- one run --------------------------------------------------------------------------------------------------

    def _label(self, job: Job[Any, Any]) -> Label:
        return Label(
            tag=f"glidemq-{uuid.uuid4().hex[:16]}",
            description=f"{job.queue}: {job.name} {job.id}",
            pool=self._pool or job.queue,
        )

    async def _wait_for(self, run: SparkRun, job: Job[Any, Any], timeout: float | None) -> object:
        # Three ends are possible, and they can coincide: the function returns, the timeout expires, or the worker
        # cancels this coroutine (revocation, lost lease, shutdown). In the last two cases the result of the function is
        # ignored, even if it arrives while `_end` waits: the outcome is decided, and the job may run elsewhere already.
        ended = asyncio.wrap_future(run.future)
        reporter = ProgressReporter(job, partial(self._in_thread, run.progress), self._interval)
        try:
            done, _ = await asyncio.wait([ended], timeout=timeout)
            if not done:
                set_abort(job.abort, "timeout")
                await self._end(run, ended, job)
                raise TimeoutError(f"the run took longer than its timeout of {timeout or 0:g} s")
            await reporter.finish()
        except asyncio.CancelledError:
            set_abort(job.abort, "cancelled")
            await self._end(run, ended, job)
            raise
        finally:
            reporter.stop()
        return ended.result()

    async def _end(self, run: SparkRun, ended: asyncio.Future[object], job: Job[Any, Any]) -> None:
        """Cancel the work, and wait for the thread and for Spark's executors, for at most `grace` seconds."""
        run.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        try:
            await asyncio.wait([ended], timeout=self._grace)
        finally:
            if not ended.done():
                self._abandon(run, ended, job)
        if not ended.done():
            return
        if not ended.cancelled():
            ended.exception()  # retrieve it, so that asyncio does not log it
        # The function has ended, but executors may still run its Python code. The lease is held until they are quiet.
        # Otherwise the next attempt of this job could run at the same time as the rest of this one.
        quiet = False
        with suppress(Exception):
            quiet = await self._in_thread(partial(run.wait_until_quiet, max(0.0, deadline - loop.time())))
        if not quiet:
            _log.warning("job %s was cancelled, but Spark executors may still work for it", job.id)

    def _abandon(self, run: SparkRun, ended: asyncio.Future[object], job: Job[Any, Any]) -> None:
        # The thread cannot be killed. The run keeps its slot, so that a handler that never ends cannot fill the process
        # with threads, and `run.cancel` continues to cancel its Spark work.
        self._abandoned[run] = job
        # The thread may end after the event loop. Without this it would call into the closed loop.
        ended.cancel()
        loop, slots = asyncio.get_running_loop(), self._slots
        run.future.add_done_callback(lambda _: _in_loop(loop, partial(self._returned, run, slots)))
        _log.warning("job %s: its function ignores job.abort, and keeps its slot until it returns", job.id)

    def _returned(self, run: SparkRun, slots: asyncio.Semaphore) -> None:
        self._abandoned.pop(run, None)
        run.forget()
        slots.release()
        self._freed()

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Call a blocking function of Spark in a thread."""
        return await asyncio.wrap_future(self._spark_threads.submit(call))

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ExecutorError(
                "this SparkExecutor was created in another process, and a forked child cannot use its parent's Spark "
                "session; start worker processes before the session is created, or use Spark Connect in each process"
            )


def engine_of(spark: SparkSession, *, interrupt: bool) -> Engine:
    """Return the engine of a session. Raises TypeError for other objects."""
    if hasattr(spark, "_jsparkSession"):
        from glidemq_async.spark.driver.classic import ClassicEngine

        return ClassicEngine(spark, interrupt=interrupt)
    if hasattr(spark, "interruptTag") and hasattr(spark, "client"):
        from glidemq_async.spark.driver.connect import ConnectEngine

        return ConnectEngine(spark)
    raise TypeError(
        f"spark must be a Spark session, got {spark!r}; pass the result of SparkSession.builder.getOrCreate()"
    )


def _arity(handler: Handler) -> int:
    """Return 1 if a handler accepts (job), else 2 if it accepts (spark, job). Raises TypeError otherwise."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a built-in function without a signature
        return 1
    for arity in (1, 2):
        with suppress(TypeError):
            signature.bind(*range(arity))
            return arity
    raise TypeError(f"{handler!r} must be a function of (spark, job) or of (job), got {signature}")


def _call(function: Callable[..., Any], job: Job[Any, Any]) -> object:
    value = function(job)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the handler returned a coroutine, but calls of Spark block; make it a plain function")
    return value


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # The event loop may be closed by now. Then nothing waits for the slot.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
