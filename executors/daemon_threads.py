"""A pool of daemon threads, so that a function that never returns does not prevent its process from ending."""

# Neither concurrent.futures nor `anyio.to_thread.run_sync` can replace this pool. Their threads are not daemons. The
# interpreter joins them when it exits, so a worker with one stuck handler could not stop. `anyio.to_thread` can abandon
# the wait for a function, but not its thread. anyio's `CapacityLimiter` counts the threads in use.

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeAlias

Call: TypeAlias = tuple["Future[object]", Callable[[], object]]


class DaemonThreads:
    """At most `limit` threads, started when they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], object]) -> Future[object]:
        """Call a function in a thread; the future gets its value or its exception.

        Raises RuntimeError when no thread can be started.
        """
        future: Future[object] = Future()
        with self._lock:
            # The count is a reservation. A thread raises it when it is free, and each call takes one off before it is
            # queued, so two calls never rely on the same idle thread. At the limit the count may be too high, which has
            # no effect: no further thread could be started then.
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._limit:
                # Raises if the system provides no more threads. The count is unchanged then.
                threading.Thread(target=self._work, name=f"glidemq-job-{self._threads + 1}", daemon=True).start()
                self._threads += 1
        self._calls.put((future, function))
        return future

    def stop(self) -> None:
        """End each thread after its current call, and cancel calls that have not begun."""
        with self._lock:
            threads, self._threads = self._threads, 0
        while not self._calls.empty():
            if (call := self._calls.get()) is not None:
                call[0].cancel()
        for _ in range(threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                _run(future, function)
            # A waiting thread would otherwise keep the last job and its result in memory until the next call.
            del call, future, function
            with self._lock:
                self._idle += 1


def _run(future: Future[object], function: Callable[[], object]) -> None:
    try:
        value = function()
    except (StopIteration, KeyboardInterrupt) as error:
        # Neither can pass through a future into a coroutine: StopIteration would hang it, KeyboardInterrupt would end
        # the program.
        wrapped = RuntimeError(f"the handler raised {type(error).__name__}")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    except BaseException as error:  # noqa: BLE001 - any error belongs to the caller that waits for it
        future.set_exception(error)
    else:
        future.set_result(value)
