"""Runs `glidemq worker` in a separate process, and waits for its log lines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.cli.commands import COMMAND
from tests.support.helpers import soon
from tests.support.servers import eventually

APP = '''
import asyncio
import os
from pathlib import Path

from glidemq_async import Job, Worker


async def process(job: Job) -> int:
    """Runs until the file that the job names is there; answers the version of this file and the process."""
    if job.data is not None:
        Path(job.data + ".awaited").touch()
    while job.data is not None and not Path(job.data).exists():
        await asyncio.sleep(0.01)
    return [VERSION, os.getpid()]


VERSION = 1
worker = Worker("q", process, concurrency=4, shutdown_timeout=30)
'''
SUPERVISED = ("--processes", "2")
"""The options that make `glidemq worker` a supervisor."""


class Running:
    """A started command; its log is JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.lines: list[dict[str, Any]] = []
        self.noise: list[str] = []

    async def line(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for the next matching line."""

        async def read() -> dict[str, Any]:
            assert self._process.stderr is not None
            async for raw in self._process.stderr:
                try:
                    found: dict[str, Any] = json.loads(raw)
                except ValueError:
                    self.noise.append(raw.decode())
                    continue
                self.lines.append(found)
                if wanted(found):
                    return found
            raise EOFError(f"the command ended: {self.lines} {self.noise}")

        return await soon(read(), 20)

    async def heard(self) -> None:
        """Wait for the next line that is not JSON."""
        assert self._process.stderr is not None
        line = await self._process.stderr.readline()
        if not line:
            raise EOFError(f"the command ended: {self.lines} {self.noise}")
        self.noise.append(line.decode())

    async def event(self, name: str) -> dict[str, Any]:
        """Wait for the next line of the supervisor about this event."""
        return await self.line(lambda line: line.get("event") == name)

    async def count(self, name: str, wanted: int) -> None:
        """Wait until the supervisor has written this many lines about this event in total."""
        while sum(line.get("event") == name for line in self.lines) < wanted:
            await self.event(name)

    async def working(self) -> dict[str, Any]:
        """Wait until the next worker has started to claim."""
        return await self.line(lambda line: "works on queue" in line["message"])

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def code(self) -> int:
        """Wait for its end and read the rest of its output."""
        with suppress(EOFError):
            await self.line(lambda _: False)
        return await soon(self._process.wait(), 20)

    async def end(self) -> None:
        """Kill it and all of its processes."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        for pid in {line["worker_pid"] for line in self.lines if "worker_pid" in line}:
            await gone(pid)
        assert self._process.stderr is not None
        await soon(self._process.stderr.read())


def _stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


async def gone(pid: int) -> None:
    """Wait until a process that is not a child of this one has ended."""

    async def check() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        with suppress(OSError):  # a zombie that was not reaped yet
            return _stat(pid).rpartition(")")[2].split()[0] == "Z"
        return False

    await eventually(check, f"process {pid} must end")


@asynccontextmanager
async def start(
    *arguments: str, cwd: Path, url: str, before: Callable[[], None] | None = None, compiled: bool = False
) -> AsyncGenerator[Running]:
    """Start `glidemq` in a directory. The end of the block kills the remaining processes.

    Imported modules are compiled each time, or with `compiled` once, as in an installation.
    """
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        cwd=cwd,
        env={**os.environ, "GLIDEMQ_URL": url, "PYTHONDONTWRITEBYTECODE": "" if compiled else "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=before,
    )
    running = Running(process)
    try:
        yield running
    finally:
        await running.end()


@asynccontextmanager
async def worker(
    *options: str,
    cwd: Path,
    url: str,
    app: str = "jobs",
    before: Callable[[], None] | None = None,
    compiled: bool = False,
) -> AsyncGenerator[Running]:
    """Start `glidemq worker`."""
    arguments = ("worker", app, "--log-format", "json", *options)
    async with start(*arguments, cwd=cwd, url=url, before=before, compiled=compiled) as running:
        yield running
