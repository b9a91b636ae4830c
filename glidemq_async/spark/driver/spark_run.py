"""One run of a function in a driver thread: labelled in Spark, and cancelled there until the thread ends."""

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
"""Seconds between two cancellations: the first may come before the work is submitted, and more may be submitted."""
LOOK_EVERY: Final = 0.1
"""Seconds between two looks whether executors still work for a cancelled run."""
RETURN_DELAY: Final = 1.0
"""After how many seconds a job comes back that a broken session could not even begin."""


class SparkRun:
    """A function in a thread of its own, which ends with it: what it sets for its thread in Spark reaches no other run.

    `future` gets what the function returned or raised, the errors of Spark as `failure_in_thread` tells them.
    `broken` is why nothing can be run in the session any more, None as long as it can; it is set before the future.
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
        # From now on nobody can cancel it: only the thread knows when it has ended.
        self.future.set_running_or_notify_cancel()

    def start(self) -> None:
        """Start the thread."""
        # Not one of a pool: whatever happens to its connection with the JVM ends with it.
        threading.Thread(target=self._work, name=f"glidemq-{self._label.tag}", daemon=True).start()

    def cancel(self) -> None:
        """Cancel the work in Spark, again and again until the thread ends; returns at once. Idempotent."""
        with self._lock:
            if self._cancelled.is_set():
                return
            self._cancelled.set()
        threading.Thread(target=self._keep_cancelling, name=f"glidemq-cancel-{self._label.tag}", daemon=True).start()

    def progress(self) -> Progress | None:
        """Return how far the work is, None if nothing changed since the last answer. Blocks; one thread at a time."""
        return self._progress.fold(self._engine.stages(self._label))

    def wait_until_quiet(self, seconds: float) -> bool:
        """Wait until no executor works for this run any more, at most so long; answers whether none does. Blocks."""
        deadline = time.monotonic() + seconds
        while any(count.active for count in self._engine.stages(self._label)):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY)
        return True

    def forget(self) -> None:
        """Let go of what the session keeps for this run."""
        self._engine.forget(self._label)

    def _keep_cancelling(self) -> None:
        while not self._ended.is_set():
            with suppress(Exception):  # the next try may reach it, and a dead JVM ends the thread by itself
                self._engine.cancel(self._label)
            self._ended.wait(CANCEL_EVERY)

    def _work(self) -> None:
        try:
            value = self._call()
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the job
            failure = self._judged(error)
            self._ended.set()
            self.future.set_exception(failure)
        else:
            self._ended.set()
            self.future.set_result(value)

    def _call(self) -> object:
        if self._cancelled.is_set():
            raise RuntimeError("the run was cancelled before it began")
        self._engine.check()
        with self._engine.labelled(self._label):
            self._begun = True
            return self._function()

    def _judged(self, error: BaseException) -> BaseException:
        if isinstance(error, StopIteration | KeyboardInterrupt):
            # Neither can travel through a future into a coroutine: the one would hang it, the other end the program.
            wrapped = RuntimeError(f"the handler raised {type(error).__name__}")
            wrapped.__cause__ = error
            return wrapped
        failure = failure_in_thread(error)
        try:
            self._engine.check()
        except ExecutorError as broken:
            self.broken = broken
            if not self._begun:  # nothing of the job was done: it costs no attempt
                return RetryLater(RETURN_DELAY)
            broken.__cause__ = failure
            return broken
        return failure
