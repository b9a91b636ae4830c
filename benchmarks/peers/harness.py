"""One phase of a measurement, in the environment of a peer: `python -m benchmarks.peers.harness NAME ROLE URL SIZE...`.

The roles are `add` (fill a queue, measured), `work` (run all jobs of a full queue), `idle` (run jobs as they come) and
`trickle` (add one job at a time to an idle queue). Each role prints one line with its result as JSON.

Only the standard library and the adapter are imported here, because a peer's environment has nothing else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

RESULT: Final = "PEER-RESULT "
FIRST: Final = "PEER-FIRST"
CALLERS: Final = 50
CONCURRENCY: Final = 100
PAUSE: Final = 0.01
SETTLE_SECONDS: Final = 1.0
"""The time after the last run in which a worker reports its last outcomes."""


class PeerAdapter(Protocol):
    """One queue: how to add jobs and how to run a worker with 100 slots that calls `note` with each job's number."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None: ...

    async def open(self) -> None:
        """Connect a producer."""
        ...

    async def add(self, number: int) -> None:
        """Add one job and wait until it is stored."""
        ...

    async def work(self) -> None:
        """Run a worker until it is cancelled."""
        ...


def payload(number: int) -> dict[str, Any]:
    """Return the data of one job."""
    return {"n": number, "to": "user@example.com", "subject": "hello world"}


class ServerClock:
    """Reads the processor time of the server over a separate connection, in seconds."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = socket.create_connection((place.hostname or "", place.port or 0))
        self._file = self._connection.makefile("rb")

    def read(self) -> float:
        """Return the processor time since the start of the server."""
        self._connection.sendall(b"INFO cpu\r\n")
        return server_seconds(self._file.read(int(self._file.readline()[1:]) + 2).decode())


def server_seconds(info: str) -> float:
    """Return the processor time that the text of INFO reports."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])


class RunCounter:
    """Counts the runs of jobs and prints the cost of all of them after the last one."""

    def __init__(self, url: str, jobs: int) -> None:
        self._server = ServerClock(url)
        self._jobs = jobs
        self._runs = 0
        self.started: dict[int, float] = {}
        self._begun = (0.0, 0.0, 0.0)
        self._ended = 0.0

    def note(self, number: int) -> None:
        """Count the run of one job. This is the first thing that a handler does."""
        self._runs += 1
        if self._runs == 1:
            self._begun = (time.perf_counter(), time.process_time(), self._server.read())
            print(FIRST, flush=True)
        self.started.setdefault(number, time.time())
        if len(self.started) == self._jobs and not self._ended:
            self._ended = time.perf_counter()
            threading.Timer(SETTLE_SECONDS, self._finish).start()

    def _finish(self) -> None:
        began, client, server = self._begun
        found = {
            "rate": self._jobs / (self._ended - began),
            "client_us": (time.process_time() - client) / self._jobs * 1e6,
            "server_us": (self._server.read() - server) / self._jobs * 1e6,
            "repeated": self._runs - self._jobs,
        }
        report({"drain": found, "started": self.started if self._jobs <= 1_000 else {}})
        # The libraries differ in how they stop a worker, and none of it is measured.
        os._exit(0)


def report(found: dict[str, Any]) -> None:
    """Print the result of the role."""
    print(RESULT + json.dumps(found), flush=True)


async def add_all(adapter: Any, url: str, jobs: int) -> None:
    """Add a twentieth of the jobs one by one, a quarter by 50 callers, a quarter in bulk, and the rest unmeasured."""
    server = ServerClock(url)
    await adapter.open()
    numbers = iter(range(jobs))
    bulk: Callable[[Sequence[int]], Awaitable[None]] | None = getattr(adapter, "add_many", None)
    concurrent: Callable[[int], Awaitable[None]] = getattr(adapter, "add_from_caller", adapter.add)
    found: dict[str, Any] = {}

    async def measured(name: str, count: int, work: Callable[[list[int]], Awaitable[None]]) -> None:
        some = [next(numbers) for _ in range(count)]
        before = time.perf_counter(), time.process_time(), server.read()
        await work(some)
        after = time.perf_counter(), time.process_time(), server.read()
        wall, client, cpu = (end - begin for begin, end in zip(before, after, strict=True))
        found[name] = {"rate": count / wall, "client_us": client / count * 1e6, "server_us": cpu / count * 1e6}

    await one_by_one(adapter.add, [next(numbers) for _ in range(CALLERS)])  # connections, scripts, caches
    await measured("one", jobs // 20, lambda some: one_by_one(adapter.add, some))
    await from_callers(concurrent, [next(numbers) for _ in range(CALLERS)])
    await measured("callers", jobs // 4, lambda some: from_callers(concurrent, some))
    if bulk is not None:
        await measured("bulk", jobs // 4, bulk)
        await bulk(list(numbers))
    else:
        await from_callers(concurrent, list(numbers))
    report(found)
    os._exit(0)


async def one_by_one(add: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    """Add jobs with one caller."""
    for number in numbers:
        await add(number)


async def from_callers(add: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    """Add jobs with 50 concurrent callers."""
    await asyncio.gather(*(one_by_one(add, numbers[first::CALLERS]) for first in range(CALLERS)))


async def trickle(adapter: Any, jobs: int) -> None:
    """Add the first job, wait for a line on stdin, and add the others with pauses."""
    await adapter.open()
    await adapter.add(0)
    await asyncio.to_thread(sys.stdin.readline)
    called: dict[int, float] = {}
    for number in range(1, jobs):
        await asyncio.sleep(PAUSE)
        called[number] = time.time()
        await adapter.add(number)
    report({"called": called})
    os._exit(0)


def _nothing(_number: int) -> None:
    raise RuntimeError("a producer runs no jobs")


def main(name: str, role: str, url: str, jobs: int) -> None:
    """Run one role."""
    logging.basicConfig(level=logging.WARNING)
    counter = RunCounter(url, jobs) if role in {"work", "idle"} else None
    # The imports of an adapter may patch the standard library, so they come before the event loop.
    adapter = import_module(f"benchmarks.peers.adapters.{name}_adapter").ADAPTER(
        url, counter.note if counter else _nothing
    )
    blocking: Callable[[], None] | None = getattr(adapter, "work_blocking", None)
    if counter and blocking is not None:
        blocking()
        return
    import uvloop

    if counter:
        uvloop.run(adapter.work())
    elif role == "trickle":
        uvloop.run(trickle(adapter, jobs))
    else:
        uvloop.run(add_all(adapter, url, jobs))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
