"""The worker processes of the demonstration: starting them, killing one, and replacing processes that end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from glidemq_async._internal.waits import together
from glidemq_async.demo.jobs.worker_process import SHUTDOWN_SECONDS, WORKING, Settings
from glidemq_async.errors import GlideMQError

_MODULE: Final = "glidemq_async.demo.jobs.worker_process"
_LINES_KEPT: Final = 20


class WorkerProcessFailed(GlideMQError):
    """Raised when a worker process ended before it claimed a job."""


class WorkerProcess:
    """One worker process."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.process = process
        self.working = False
        """True once it has claimed a job. From then on it runs jobs until the queue is empty."""
        self.messages: deque[str] = deque(maxlen=_LINES_KEPT)

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.process.pid})"


class WorkerProcesses:
    """A fixed number of worker processes. A process that ends or is killed is replaced.

    Leaving the block stops them. They let running jobs end, and are killed if that takes too long. `note` is called
    with a sentence about each event of their lives.
    """

    def __init__(self, size: int, settings: Settings, note: Callable[[str], None]) -> None:
        self._size = size
        self._settings = settings
        self._note = note
        self._processes: list[WorkerProcess] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._has_working = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.killed: WorkerProcess | None = None
        """The process that `kill_one` killed."""
        self.started = 0
        """Number of started processes."""

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._size):
                await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def kill_one(self) -> None:
        """Kill one process that has claimed jobs, with SIGKILL. Waits until there is one."""
        while self.killed is None:
            await self._has_working.wait()
            self._has_working.clear()
            for process in self._processes:
                if process.working and process.process.returncode is None:
                    self.killed = process
                    process.process.kill()
                    break

    async def failed(self) -> None:
        """Wait for a failure of the processes. Raises WorkerProcessFailed if they cannot run jobs."""
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop every process and wait for its end. Idempotent."""
        self._stopping = True
        for process in self._processes:
            if process.process.stdin is not None:
                process.process.stdin.close()
        # A replacement may be starting now. Its watch is then part of the next round.
        deadline = asyncio.get_running_loop().time() + 2 * SHUTDOWN_SECONDS
        while self._watches:
            _, late = await asyncio.wait(self._watches, timeout=max(0.1, deadline - asyncio.get_running_loop().time()))
            if late:
                self._kill_all()
        if self._failure.done():
            self._failure.exception()

    def _kill_all(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.process.kill()

    async def _start(self) -> WorkerProcess:
        self.started += 1
        number = self.started
        # In a new session Ctrl-C reaches only this process, which then stops the workers in order.
        started = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", _MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        process = WorkerProcess(number, started)
        self._processes.append(process)
        settings: Settings = {**self._settings, "name": f"{self._settings['name']}-{number}"}
        assert started.stdin is not None  # noqa: S101 - requested above
        started.stdin.write(json.dumps(settings).encode() + b"\n")
        if self._stopping:
            started.stdin.close()
        watch = asyncio.create_task(self._watch(process))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return process

    async def _watch(self, process: WorkerProcess) -> None:
        await together([self._read_reports(process), self._read_messages(process)])
        code = await process.process.wait()
        self._processes.remove(process)
        if self._stopping:
            return
        if process is not self.killed and not process.working:
            self._fail(process, code)
            return
        try:
            successor = await self._start()
        except OSError as error:
            self._fail(process, code, [f"no replacement could be started: {error}"])
            return
        self._note(f"{process} {_ending(code)}; {successor} replaces it")

    async def _read_reports(self, process: WorkerProcess) -> None:
        assert process.process.stdout is not None  # noqa: S101 - requested at its start
        async for line in process.process.stdout:
            if line.decode().strip() == WORKING:
                process.working = True
                self._has_working.set()

    async def _read_messages(self, process: WorkerProcess) -> None:
        assert process.process.stderr is not None  # noqa: S101 - requested at its start
        async for line in process.process.stderr:
            text = line.decode(errors="replace").rstrip()
            process.messages.append(text)
            if process.working:
                self._note(f"worker {process.number}: {text}")

    def _fail(self, process: WorkerProcess, code: int, messages: Sequence[str] = ()) -> None:
        if not self._failure.done():
            said = "\n".join([*process.messages, *messages]) or "it printed no message"
            self._failure.set_exception(
                WorkerProcessFailed(f"{process} {_ending(code)} before it claimed a job:\n{said}")
            )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
