"""One run of a function in a driver thread, with labelled Spark work that can be cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from glidemq_async.errors import ExecutorError, RetryLater
from glidemq_async.spark.driver.engine import Engine, Label
from glidemq_async.spark.driver.errors import failure_in_thread
from glidemq_async.spark.driver.progress import Progress, StageProgress

CANCEL_EVERY: Final = 0.25
"""Seconds between two cancellations of a run."""
CHECK_EVERY: Final = 0.1
"""Seconds between two checks of whether executors still work for a cancelled run."""
RETURN_DELAY: Final = 1.0
"""Delay in seconds of a job that could not begin because the session is broken."""


class SparkRun:
    """A function in a new thread, so that Spark settings of the thread do not reach another run.

    `future` gets the result or the exception of the function, with Spark errors converted by `failure_in_thread`.
    `broken` is the reason if the session cannot run any more jobs, else None. It is set before the future.
    """

    def __init__(self, engine: Engine, label: Label, function: Callable[[], object]) -> None:
        self._engine = engine
        self._label = label
        self._function = function
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._progress = StageProgress()
        self._begun = False
        self.broken: ExecutorError | None = None
        self.future: Future[object] = Future()
        # Mark the future as running, so that it cannot be cancelled. Only the thread knows when the function has ended.
        self.future.set_running_or_notify_cancel()

    def start(self) -> None:
        """Start the thread."""
        # Not a pool thread: Spark binds a JVM thread to it, whose state (properties, a broken connection) must end with
        # the run.
        threading.Thread(target=self._work, name=f"glidemq-{self._label.tag}", daemon=True).start()

    def cancel(self) -> None:
        """Start to cancel the Spark work repeatedly until the thread ends, and return immediately. Idempotent."""
        with self._lock:
            if self._cancelled.is_set():
                return
            self._cancelled.set()
        threading.Thread(target=self._keep_cancelling, name=f"glidemq-cancel-{self._label.tag}", daemon=True).start()

    def progress(self) -> Progress | None:
        """Return the progress, or None if it has not changed since the last call. Blocks; not thread-safe."""
        return self._progress.fold(self._engine.stages(self._label))

    def wait_until_quiet(self, seconds: float) -> bool:
        """Wait until no executor works for this run. Return False after `seconds`. Blocks."""
        deadline = time.monotonic() + seconds
        while any(count.active for count in self._engine.stages(self._label)):
            if time.monotonic() > deadline:
                return False
            time.sleep(CHECK_EVERY)
        return True

    def forget(self) -> None:
        """Drop the state of this run in the engine."""
        self._engine.forget(self._label)

    def _keep_cancelling(self) -> None:
        # One cancellation is not enough. Spark ignores it for work that is not submitted yet, and the function may
        # catch the error of one action and start the next one. So cancel until the thread has ended, and not longer:
        # the tag belongs to this run only, but a thread that never ends would stay for the life of the process.
        while not self._ended.is_set():
            with suppress(Exception):  # retried below; if the JVM is dead, the function fails by itself
                self._engine.cancel(self._label)
            self._ended.wait(CANCEL_EVERY)

    def _work(self) -> None:
        try:
            value = self._call()
        except BaseException as error:  # noqa: BLE001 - every error is the outcome of the job
            failure = self._failure_of(error)
            self._ended.set()
            self.future.set_exception(failure)
        else:
            self._ended.set()
            self.future.set_result(value)

    def _call(self) -> object:
        # `cancel` may come before this line, and its first cancellations find nothing to cancel. Work that starts after
        # this check is caught by a later cancellation.
        if self._cancelled.is_set():
            raise RuntimeError("the run was cancelled before it began")
        self._engine.check()
        with self._engine.labelled(self._label):
            self._begun = True
            return self._function()

    def _failure_of(self, error: BaseException) -> BaseException:
        if isinstance(error, StopIteration | KeyboardInterrupt):
            return _wrapped(error)
        # Check the session before the error is classified. If the JVM has died, py4j raises a network error in the
        # middle of the function, which looks like an ordinary failure of the job.
        failure = failure_in_thread(error)
        try:
            self._engine.check()
        except ExecutorError as broken:
            # Set before the future: the executor reads it when the future is done.
            self.broken = broken
            if not self._begun:  # the function was not called, so the job does not lose an attempt
                return RetryLater(RETURN_DELAY)
            broken.__cause__ = failure
            return broken
        return failure


def _wrapped(error: BaseException) -> RuntimeError:
    # A future cannot carry these into a coroutine: StopIteration would hang it, KeyboardInterrupt end the program.
    wrapped = RuntimeError(f"the handler raised {type(error).__name__}")
    wrapped.__cause__ = error
    return wrapped
