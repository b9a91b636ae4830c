"""Warnings about handlers that block the event loop of their worker.

While a job is running, the lease thread of the process sends a heartbeat to the worker's loop four times a second. If
the loop does not answer within a second, something blocks it, and the stack of the loop's thread shows the place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import site
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any, Final

from glidemq_async._internal.repeated_log import RepeatedLog
from glidemq_async.worker import lease_thread
from glidemq_async.worker.runs import Run

BLOCKED_SECONDS: Final = 1.0
"""Time without a reply to the heartbeat after which a blocked loop is reported."""
BEAT_SECONDS: Final = 0.25
_ADVICE: Final = "make it a plain function, which runs in a thread, or run the blocking call with asyncio.to_thread"

_log = logging.getLogger(__name__)
_OWN: Final = f"{Path(__file__).parents[1]}{os.sep}"
_FOREIGN: Final = tuple(
    {_OWN, *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib")), *site.getsitepackages()}
)
"""Folders whose frames are skipped to find the line of the user's code."""


class LoopWatch:
    """Watches the event loop in which it is created, for all workers of that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._users: list[Callable[[], list[Run]]] = []
        self._thread = lease_thread.shared
        self._work: Future[None] | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._warnings = RepeatedLog(_log)
        self._answered = 0.0

    def enter(self, runs: Callable[[], list[Run]]) -> None:
        """Watch for a worker that starts. `runs` returns its current runs and is called from any thread."""
        self._users.append(runs)
        if self._work is None:
            self._work = self._thread.start(self._main())

    async def leave(self, runs: Callable[[], list[Run]]) -> None:
        """End the watch for the worker of `enter`. The last worker stops the watch."""
        if runs not in self._users:
            return
        self._users.remove(runs)
        if self._users or self._work is None:
            return
        _watches.pop(self._loop, None)
        work, self._work, self._stopping = self._work, None, True
        self._thread.call(self._end)
        await asyncio.wait([asyncio.wrap_future(work)])
        await asyncio.to_thread(self._thread.leave)

    def _end(self) -> None:
        if self._stop is not None:
            self._stop.set()

    # -- in the lease thread --------------------------------------------------------------------------------------

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        sent, is_out, is_reported = 0.0, False, False
        while not self._stopping:
            before = time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), BEAT_SECONDS)
            now = time.monotonic()
            if is_out and self._answered >= sent:
                is_out = is_reported = False
            if now - before > BEAT_SECONDS + BLOCKED_SECONDS:
                # This thread was suspended too: the machine slept or the process was stopped. No handler blocked.
                sent = now
            elif is_out and not is_reported and now - sent >= BLOCKED_SECONDS:
                is_reported = True
                self._warn(now - sent)
            if not is_out and any(runs() for runs in tuple(self._users)):
                sent, is_out = now, self._send()

    def _send(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _warn(self, seconds: float) -> None:
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        line = _line_of(frame)
        blocker = self._name(task)
        self._warnings.write(
            (blocker, line),
            "%s has blocked the event loop for %.1f s, at %s; no other job in this loop can run: %s",
            blocker,
            seconds,
            line,
            _ADVICE,
        )

    def _name(self, task: asyncio.Task[Any] | None) -> str:
        running = [run for runs in tuple(self._users) for run in runs()]
        for run in running:
            if run.task is task:
                return f"the handler of job {run.job.name!r} of queue {run.job.queue!r}"
        names = ", ".join(sorted({repr(run.job.name) for run in running})[:3])
        return f"code outside of the handlers' tasks (running: {names})"


def _line_of(frame: FrameType | None) -> str:
    """Return the innermost line that belongs to neither the standard library, nor a package, nor this library."""
    innermost = frame
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(("<", *_FOREIGN)):
            break
        frame = frame.f_back
    found = frame or innermost
    return f"{found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}" if found else "an unknown line"


_watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}


def watch_of_this_loop() -> LoopWatch:
    """Return the watch that all workers of the running loop share."""
    loop = asyncio.get_running_loop()
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = LoopWatch()
    return found
