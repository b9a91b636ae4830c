"""A worker process from the supervisor's point of view."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import signal
import socket
import sys
from contextlib import suppress
from typing import Final, Protocol

from glidemq_async._internal.http_endpoint import Page
from glidemq_async.cli.worker.delegated_ports import Message, Where, page_from_message
from glidemq_async.cli.worker.settings import WorkerSettings

_COMMAND: Final = (sys.executable, "-m", "glidemq_async.cli.worker.child")
_LONGEST_LINE: Final = 64 * 1024 * 1024
"""Maximum length of a message in bytes. A page of metrics is one message, and asyncio's default is 64 KiB."""


class PortKeeper(Protocol):
    """The listener that serves the ports of the processes."""

    async def open(self, where: Where) -> None:
        """Listen; idempotent. Raises OSError."""
        ...


class WorkerProcess:
    """A started worker process. `ready` is set when it claims jobs, and `ended` when it has exited."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        channel: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        ports: PortKeeper,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.number = number
        self.pid = process.pid
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.delegated: set[Where] = set()
        """The ports that it delegated to the supervisor."""
        self.lacks_port = False
        """True if a port that it needs could not be opened. A new process would not get it either."""
        self._process = process
        self._reader, self._writer = channel
        self._ports = ports
        self._asked: dict[int, asyncio.Future[Page | None]] = {}
        self._numbers = itertools.count(1)
        self._stop_sent = False
        self._since = asyncio.get_running_loop().time()
        self._ready_since: float | None = None
        # Two tasks, because the end of the channel and the end of the process are two events. A process may close its
        # standard input and live on, and the channel of a dead process may still contain its last messages.
        tasks.create_task(self._listen())
        tasks.create_task(self._wait())

    @classmethod
    async def start(
        cls, settings: WorkerSettings, number: int, ports: PortKeeper, tasks: asyncio.TaskGroup
    ) -> WorkerProcess:
        """Start a new process in a new session, so that Ctrl-C in a terminal reaches only the supervisor."""
        # The channel is the standard input of the process, so it reads the end of the file when the supervisor dies,
        # however that happens, and then stops.
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=theirs.fileno(), start_new_session=True)
            channel = await asyncio.open_connection(sock=ours, limit=_LONGEST_LINE)
            channel[1].write(settings.to_line())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(number, process, channel, ports, tasks)

    async def _listen(self) -> None:
        with suppress(OSError, ValueError):  # ValueError: a line longer than any of our pages
            async for line in self._reader:
                await self._hear(json.loads(line))
        # Nothing arrives any more. A scrape that waits for a page of this process must not wait until its timeout.
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)

    async def _hear(self, message: Message) -> None:
        if message["say"] == "ready":
            self._ready_since = asyncio.get_running_loop().time()
            self.ready.set()
        elif message["say"] == "page":
            answer = self._asked.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(page_from_message(message))
        else:
            await self._delegate(message["say"], message["host"], message["port"])

    async def _delegate(self, request: str, host: str | None, port: int) -> None:
        if request == "close":
            self.delegated.discard((host, port))
            return
        problem: tuple[int, str] | None = None
        try:
            await self._ports.open((host, port))
            self.delegated.add((host, port))
        except OSError as error:
            problem = (error.errno or errno.EINVAL, error.strerror or str(error))
            self.lacks_port = True
        self._send({"do": "opened", "host": host, "port": port, "problem": problem})

    async def ask(self, where: Where, path: str, seconds: float) -> Page | None:
        """Return a page of one of its ports, or None if it does not reply in time."""
        number = next(self._numbers)
        answer: asyncio.Future[Page | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send({"do": "page", "id": number, "host": where[0], "port": where[1], "path": path})
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    def _send(self, message: dict[str, object]) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _wait(self) -> None:
        await self._process.wait()
        self._writer.close()
        self.ended.set()

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return asyncio.get_running_loop().time() - self._since

    @property
    def worked_for(self) -> float:
        """Seconds since it began to claim jobs; 0 if it never did."""
        return 0.0 if self._ready_since is None else asyncio.get_running_loop().time() - self._ready_since

    @property
    def code(self) -> int:
        """The exit code of an ended process; negative if a signal killed it."""
        code = self._process.returncode
        assert code is not None  # noqa: S101 - used only after its end
        return code

    @property
    def end(self) -> str:
        """A description of its end."""
        if self.code >= 0:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-self.code).name}"
        return f"killed by signal {-self.code}"

    def stop(self) -> None:
        """Ask it to end after its running jobs. The signal is sent once, because a second one releases the jobs."""
        if not self._stop_sent:
            self._stop_sent = True
            self.send(signal.SIGTERM)

    def release_jobs(self) -> None:
        """Ask it to release its running jobs. Not by a signal, because two signals of a kind can merge into one."""
        self._send({"do": "release"})

    def send(self, number: signal.Signals) -> None:
        """Send it a signal if it still runs."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
