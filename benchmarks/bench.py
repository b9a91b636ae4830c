"""The common parts of all scenarios: a server, a new queue, a payload, and a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final, cast

from glidemq_async import Queue
from glidemq_async.storage.redis.wire import Wire

from .server import ask, connected

QUEUE: Final = "bench"
PAYLOAD: Final = {"to": "ada@example.org", "template": "welcome", "attempt": 1}
RESULT: Final = {"sent": True, "bytes": 1024}


@dataclass(frozen=True, slots=True)
class Bench:
    """One empty server and a bare connection to it."""

    url: str
    wire: Wire


@contextlib.asynccontextmanager
async def open_bench(url: str) -> AsyncGenerator[Bench]:
    """Empty the server (the function library stays) and connect to it."""
    async with connected(url) as wire:
        await ask(wire, "FLUSHALL", "SYNC")
        yield Bench(url, wire)


def open_queue(bench: Bench) -> Queue[Any, Any]:
    """Return the queue that is measured."""
    return Queue[Any, Any](QUEUE, bench.url)


async def fill(queue: Queue[Any, Any], jobs: int) -> None:
    """Add jobs in bulk."""
    await queue.add_bulk([("job", PAYLOAD)] * jobs)


def expect(what: str, found: int, wanted: int) -> None:
    """Void a run that lost or repeated jobs."""
    if found != wanted:
        raise RuntimeError(f"{what}: {found} jobs instead of {wanted}; the run is void")


class IdleProcess:
    """A worker or a bare loop in a separate process. It is idle when the block begins."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def finish(self) -> dict[str, float]:
        """Stop the worker; return the wall-clock time at which each job's handler started, by job id."""
        output, _ = await self._process.communicate(b"\n")
        if self._process.returncode:
            raise RuntimeError(f"the worker process ended with status {self._process.returncode}")
        return cast("dict[str, float]", json.loads(output))

    async def kill(self) -> None:
        """End the process if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def worker_process(bench: Bench, *, workers: int = 1, concurrency: int = 100) -> AsyncGenerator[IdleProcess]:
    """Start idle workers in another process. They end with this block."""
    async with idle_process("benchmarks.idle_workers", bench.url, str(workers), str(concurrency)) as worker:
        yield worker


@contextlib.asynccontextmanager
async def idle_process(module: str, *words: str) -> AsyncGenerator[IdleProcess]:
    """Run a module that prints "ready" once it is idle. The process ends with this block."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, stdin=PIPE, stdout=PIPE)
    worker = IdleProcess(process)
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the process of {module} did not start")
        yield worker
    finally:
        await worker.kill()
