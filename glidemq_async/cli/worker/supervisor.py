"""The parent of several worker processes. It starts, restarts and stops them, and runs no jobs itself.

A process that dies is restarted after a growing delay. A process that is replaced stops when its successor claims
jobs.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from glidemq_async._internal.http_endpoint import port_problem
from glidemq_async._internal.waits import first_of, task_group, together
from glidemq_async.cli.exits import FAILED, GAVE_UP, RELEASED, UNAVAILABLE, USAGE, CommandError
from glidemq_async.cli.worker.children import WorkerProcess
from glidemq_async.cli.worker.hangup import listen_to_hangup
from glidemq_async.cli.worker.settings import WorkerSettings
from glidemq_async.cli.worker.shared_ports import SharedPorts
from glidemq_async.worker.signals import stop_on_signals

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 30.0
"""Seconds before the restart of a process that died during its start; doubled each time."""
STABLE_SECONDS: Final = 10.0
"""Seconds of work after which the restart delay of a process is reset."""
KILL_SECONDS: Final = 15.0
"""Seconds that processes may take after the second stop request before they are killed."""

_log = logging.getLogger("glidemq_async.supervisor")


# Each worker (`_NumberedWorker`) has one task, `_keep_running`, and only this task starts its processes. Signals and
# changed files only set events that it waits for. So a restart request, the death of the process and the end of a pause
# can come in any order, and there are never two starts for one worker.
#
# A replacement overlaps: the successor starts, and the old process stops only when the successor claims jobs. A release
# that cannot start therefore leaves the working processes in place. Both processes run for a moment, so a port cannot
# belong to a process (see `shared_ports`).
#
# A stop may arrive while a process starts, when it is not yet in `_children` and gets no signal. `_start` checks
# `_stopping` after it has added the process. A request between the two would be lost otherwise, and the supervisor
# would wait for a process that never stops.
class Supervisor:
    """Runs `count` processes with the same settings until it is stopped.

    It ends by itself when each process has found its queues empty (`until_empty`), when a process dies during its start
    more than `most_restarts` times in a row, or when no process has started yet and another start would fail too.
    """

    def __init__(
        self, settings: WorkerSettings, count: int, *, most_restarts: int, changes: _Changes | None = None
    ) -> None:
        self._settings = settings
        self._most_restarts = most_restarts
        self._changes = changes
        self._workers = [_NumberedWorker(number) for number in range(1, count + 1)]
        self._children: dict[WorkerProcess, None] = {}  # in start order
        self._ports = SharedPorts([worker.number for worker in self._workers], lambda: self._children)
        self._stopping = asyncio.Event()
        self._code = 0
        self._was_ready = False
        self._killer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup  # from `_supervise`

    async def run(self) -> int:
        """Supervise until the end, and return the exit code. Raises CommandError if the health port is in use."""
        if self._settings.health_port is not None:
            await self._listen(self._settings.health_port)
        with stop_on_signals(self._stop_asked, self._release_jobs):
            listen_to_hangup(self._restart_asked, self._stop_asked)
            try:
                await self._supervise()
            finally:
                # Also after an error: nothing would restart or stop a worker without a supervisor.
                self._kill()
                if self._killer is not None:
                    self._killer.cancel()
                await self._ports.close()
        _say("ended", f"all worker processes have ended: exit code {self._code}", exit_code=self._code)
        return self._code

    async def _supervise(self) -> None:
        """Run until each process has ended and is not started again. Every task of the supervisor belongs to here."""
        async with task_group() as self._tasks:
            watching = self._tasks.create_task(self._watch()) if self._changes is not None else None
            await together(self._keep_running(worker) for worker in self._workers)
            for child in tuple(self._children):
                await child.ended.wait()
            if watching is not None:
                watching.cancel()

    async def _listen(self, port: int) -> None:
        """Serve probes before the first process has started."""
        try:
            await self._ports.open((None, port))
        except OSError as error:
            raise CommandError(str(port_problem("health", None, port, error))) from error

    # -- stopping and restarting --------------------------------------------------------------------------------------

    def _stop_asked(self) -> None:
        _say("stopping", "stopping: waiting for running jobs; a second signal releases them")
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for child in self._children:
            child.stop()

    def _release_jobs(self) -> None:
        _say("stopping", "stopping immediately: running jobs are released")
        # The first cause decides the exit code. Later ends are mostly its consequences.
        self._code = self._code or RELEASED
        self._stop()
        for child in self._children:
            child.release_jobs()
        if self._killer is None:
            self._killer = asyncio.get_running_loop().call_later(KILL_SECONDS, self._kill)

    def _kill(self) -> None:
        for child in self._children:
            _say("killed", f"worker {child.number} (pid {child.pid}) does not end, so it is killed", child)
            child.send(signal.SIGKILL)

    def _restart_asked(self) -> None:
        _say("restarting", "SIGHUP: each worker process is replaced")
        self._restart()

    def _restart(self) -> None:
        for worker in self._workers:
            worker.restart.set()

    async def _watch(self) -> None:
        assert self._changes is not None  # noqa: S101 - this task starts only with changes
        async for paths in self._changes:
            _say("changed", f"{', '.join(sorted(paths))} changed: each worker process is replaced")
            self._restart()

    # -- one numbered worker ------------------------------------------------------------------------------------------

    async def _keep_running(self, worker: _NumberedWorker) -> None:
        """Keep one process running until the supervisor stops."""
        child = await self._start(worker)
        while True:
            await first_of(child.ended, worker.restart)
            if not child.ended.is_set():
                worker.restart.clear()
                child = await self._replace(worker, child)
                continue
            if not await self._wait_for_restart(worker, child):
                return
            child = await self._start(worker)

    async def _start(self, worker: _NumberedWorker, instead_of: WorkerProcess | None = None) -> WorkerProcess:
        settings = replace(self._settings, number=worker.number)
        child = await WorkerProcess.start(settings, worker.number, self._ports, self._tasks)
        self._children[child] = None
        why = "" if instead_of is None else f", to replace pid {instead_of.pid}"
        _say("started", f"worker {child.number} started, pid {child.pid}{why}", child)
        worker.follow(child, self._tasks.create_task(self._follow(child)))
        if self._stopping.is_set():  # stopped during its start
            child.stop()
        return child

    async def _follow(self, child: WorkerProcess) -> None:
        """Log the life of a process."""
        await first_of(child.ready, child.ended)
        if child.ready.is_set():
            self._was_ready = True
            _say("ready", f"worker {child.number} (pid {child.pid}) is ready after {child.age:.2f} s", child)
        await child.ended.wait()
        self._children.pop(child, None)
        level = logging.INFO if child.code == 0 or self._stopping.is_set() else logging.WARNING
        text = f"worker {child.number} (pid {child.pid}) ended: {child.end}"
        _say("exited", text, child, level=level, exit_code=child.code)
        if self._stopping.is_set() and child.code not in (0, RELEASED, -signal.SIGTERM):
            self._code = self._code or FAILED

    async def _replace(self, worker: _NumberedWorker, old: WorkerProcess) -> WorkerProcess:
        """Start a successor. The old process stops when the successor is ready, and stays if it never is."""
        if self._stopping.is_set():
            return old
        new = await self._start(worker, old)
        await first_of(new.ready, new.ended)
        if new.ready.is_set():
            old.stop()
            return new
        if not old.ended.is_set():
            _say("kept", f"worker {old.number} (pid {old.pid}) stays: its successor did not start", old)
        return old

    async def _wait_for_restart(self, worker: _NumberedWorker, child: WorkerProcess) -> bool:
        """Wait until an ended process should be restarted. Return False if it should not."""
        await worker.until_logged(child)
        if self._stopping.is_set() or (self._settings.until_empty and child.code == 0):
            return False
        worker.deaths = 0 if child.worked_for >= STABLE_SECONDS else worker.deaths + 1
        # With --reload a faulty edit is the usual cause. The same code would fail again, so the process waits for the
        # next change. A server that was not started yet needs no change of the code.
        reloads, lacks_server = self._changes is not None, child.code == UNAVAILABLE
        if reloads and child.code != 0 and not lacks_server:
            _say("waiting", f"worker {child.number} starts again when a file changes", child)
            await first_of(worker.restart, self._stopping)
        elif not (reloads and lacks_server) and self._is_hopeless(worker, child):
            return False
        else:
            pause = min(FIRST_PAUSE * 2 ** max(0, worker.deaths - 1), LONGEST_PAUSE)
            earlier = ", or when a file changes" if reloads else ""
            _say("waiting", f"worker {child.number} starts again in {pause:g} s{earlier}", child, seconds=pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await first_of(worker.restart, self._stopping)
        worker.restart.clear()
        return not self._stopping.is_set()

    def _is_hopeless(self, worker: _NumberedWorker, child: WorkerProcess) -> bool:
        """Return True if a restart is useless. Then everything stops."""
        # Only before the first success: an app that has worked in this supervisor can be loaded, so a later failure may
        # be temporary.
        if child.code == USAGE and not self._was_ready:
            self._give_up(USAGE, "the app cannot be run")
            return True
        # A process has waited for its server for the whole `--server-timeout`, or the server refused it.
        if child.code == UNAVAILABLE and not self._was_ready:
            self._give_up(UNAVAILABLE, "the server cannot be used")
            return True
        if child.lacks_port and child.code == FAILED and not self._was_ready:
            self._give_up(FAILED, "a port that the app listens on cannot be used")
            return True
        # An outage of the server does not count against workers that worked before.
        if worker.deaths > self._most_restarts and child.code != UNAVAILABLE:
            short = f"each time before it had worked for {STABLE_SECONDS:g} s"
            self._give_up(GAVE_UP, f"worker {worker.number} died {worker.deaths} times in a row, {short}")
            return True
        return False

    def _give_up(self, code: int, why: str) -> None:
        if not self._stopping.is_set():
            _say("gave_up", f"giving up: {why}", level=logging.ERROR)
            self._code = code
            self._stop()


class _NumberedWorker:
    """One of the workers. It keeps its number when its process is replaced."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.restart = asyncio.Event()
        self.deaths = 0
        self._following: dict[WorkerProcess, asyncio.Task[None]] = {}

    def follow(self, child: WorkerProcess, task: asyncio.Task[None]) -> None:
        """Keep a reference to the task that logs the life of a process."""
        self._following[child] = task
        task.add_done_callback(lambda _: self._following.pop(child))

    async def until_logged(self, child: WorkerProcess) -> None:
        """Wait until the end of a process was logged, so that later lines follow it."""
        if (task := self._following.get(child)) is not None:
            await task


_Changes = AsyncIterator[Iterable[str]]


def _say(
    event: str, text: str, child: WorkerProcess | None = None, *, level: int = logging.INFO, **fields: object
) -> None:
    about = {"worker": child.number, "worker_pid": child.pid} if child is not None else {}
    _log.log(level, text, extra={"event": event, **about, **fields})
