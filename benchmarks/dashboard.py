"""The cost of the dashboard with many queues, viewers and jobs: `make bench-dashboard`.

The first part has 1,000 queues, of which some work, and browsers that show the overview. The second part has a queue
with a million jobs, and searches in it. The viewers send the requests of the script of the pages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote, urlsplit

from glidemq_async import JobOptions, Queue, Worker
from glidemq_async.storage import Storage, open_storage

from .reading_calls import PAGES, PASSES, CallCost, call_costs
from .server import ServerCost, connected, running_server

REPORT = Path(__file__).parents[1] / "docs" / "reports" / "dashboard.md"
BUSY_SHARE = 0.05
"""The share of the queues with a worker and new jobs."""
WATCHED_SECONDS = 30.0
LONGEST_SECONDS = 900.0
"""Time after which the benchmark gives up, and names the step that did not end."""
REPLY_SECONDS = 60.0
"""Time after which a request counts as lost."""
REQUESTS = 30
_TICKS = os.sysconf("SC_CLK_TCK")
FILTERS = (
    "",
    "state:waiting",
    "state:delayed",
    "name:rare",
    "key:tenant-70",
    "state:waiting name:send* key:tenant-70",
    "data.n:>999990",
    'error:"nothing"',
)


@dataclass
class PageTimes:
    """The times of the requests of one address."""

    title: str
    seconds: list[float]
    size: int

    @property
    def row(self) -> str:
        """The row of the report."""
        most = max(self.seconds) * 1000
        return f"| {self.title} | {median(self.seconds) * 1000:.0f} ms | {most:.0f} ms | {self.size / 1024:,.0f} KiB |"


@dataclass
class WatchCost:
    """The cost of open pages."""

    viewers: int
    process: float
    server: float
    refreshes: int
    updates: int


@dataclass
class SearchCost:
    """The requests of a search."""

    title: str
    calls: int
    pages: list[float]
    found: int
    searched: int


@dataclass
class DashboardFigures:
    """All figures."""

    queues: int
    jobs: int
    loads: list[float] = field(default_factory=list[float])
    """The load of the machine at the beginning of each part and at the end."""
    pages: list[PageTimes] = field(default_factory=list[PageTimes])
    watched: list[WatchCost] = field(default_factory=list[WatchCost])
    searches: list[SearchCost] = field(default_factory=list[SearchCost])
    calls: list[CallCost] = field(default_factory=list[CallCost])


class BrowserConnection:
    """A connection of a browser."""

    def __init__(self, base: str) -> None:
        self._host = urlsplit(base).netloc
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def get(self, path: str, *headers: str) -> bytes:
        """Return the body of a page. Connects again if the server has closed an idle connection."""
        async with asyncio.timeout(REPLY_SECONDS):
            try:
                return await self._get(path, *headers)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                self._writer = None
                return await self._get(path, *headers)

    async def _get(self, path: str, *headers: str) -> bytes:
        await self.ask(path, *headers)
        assert self._reader is not None
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"{path}: {head.decode()}")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self._reader.readexactly(int(length.split(b":")[1]))

    async def ask(self, path: str, *headers: str) -> None:
        """Send a request."""
        if self._writer is None:
            host, port = self._host.split(":")
            self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=2**24)
        lines = [f"GET {path} HTTP/1.1", f"Host: {self._host}", "Accept: text/html", *headers, "", ""]
        self._writer.write("\r\n".join(lines).encode())
        await self._writer.drain()

    async def lines(self) -> AsyncGenerator[str]:
        """Iterate over the lines of a stream."""
        assert self._reader is not None
        while line := await self._reader.readline():
            yield line.decode().rstrip()

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()


class OpenPage:
    """An open page, which follows a topic and loads its new state, as the script of the pages does."""

    def __init__(self, base: str, path: str, topic: str) -> None:
        self._stream, self._client = BrowserConnection(base), BrowserConnection(base)
        self._path, self._topic = path, topic
        self._last = 0.0
        self._pace = 2.0
        self.is_open = asyncio.Event()
        self.refreshes = self.updates = 0

    async def run(self) -> None:
        """Follow until the task is cancelled."""
        timer: asyncio.Task[None] | None = None
        try:
            await self._client.get(self._path)
            await self._stream.ask(f"/api/v1/events?topics={self._topic}", "Accept: text/event-stream")
            async for line in self._stream.lines():
                if not line.startswith("data: "):
                    continue
                self.is_open.set()
                self.updates += 1
                self._pace = json.loads(line[6:])["document"].get("pace", 2.0)
                if timer is None or timer.done():
                    timer = asyncio.create_task(self._refresh())
        finally:
            if timer is not None:
                timer.cancel()
            self._stream.close()
            self._client.close()

    async def _refresh(self) -> None:
        await asyncio.sleep(max(0.0, self._last + self._pace - time.monotonic()))
        self._last = time.monotonic()
        await self._client.get(self._path, "X-Refresh: 1")
        self.refreshes += 1


@asynccontextmanager
async def dashboard(url: str) -> AsyncGenerator[tuple[str, int]]:
    """Run `glidemq ui`, and yield its address and its process id."""
    environment = {**os.environ, "GLIDEMQ_URL": url}
    command = ["-m", "glidemq_async.cli", "ui", "--port", "0"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, env=environment, stderr=PIPE)
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    # A full pipe would stop the process.
    said = asyncio.create_task(_forward(process.stderr))
    try:
        yield line.split()[2].rstrip("/"), process.pid
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            say("glidemq ui does not end, and is killed")
            process.kill()
            await process.wait()
        await said


async def _forward(lines: asyncio.StreamReader) -> None:
    while line := await lines.readline():
        sys.stderr.write(line.decode())


_began = time.monotonic()


def say(text: str) -> None:
    """Print the step that begins."""
    print(f"{time.monotonic() - _began:6.1f} s  {text}", file=sys.stderr, flush=True)


def used_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def timed(base: str, title: str, path: str, requests: int) -> PageTimes:
    """Request a page several times."""
    say(title)
    client, seconds, size = BrowserConnection(base), list[float](), 0
    for _ in range(requests):
        began = time.perf_counter()
        size = len(await client.get(path))
        seconds.append(time.perf_counter() - began)
    client.close()
    return PageTimes(title, seconds, size)


# -- many queues ------------------------------------------------------------------------------------------------------


async def many_queues(url: str, count: int, viewers: list[int], figures: DashboardFigures) -> None:
    """Measure the overview of many queues, alone and with viewers."""
    names = [f"team-{number // 50:02}-queue-{number:04}" for number in range(count)]
    busy = names[:: round(1 / BUSY_SHARE)]
    say(f"{count:,} queues")
    async with open_storage(url) as storage:
        for name in names:
            async with Queue[Any, Any](name, storage) as queue:
                await queue.add_bulk([("x", 0)] * 5)
        stop = asyncio.Event()
        load = asyncio.create_task(_load(storage, busy, stop))
        try:
            async with dashboard(url) as (base, pid):
                figures.pages.append(await timed(base, "overview (page)", "/", REQUESTS))
                figures.pages.append(await timed(base, "overview (API)", "/api/v1/overview", REQUESTS))
                figures.pages.append(await timed(base, "queues (page)", "/queues", REQUESTS))
                for number in viewers:
                    figures.watched.append(await _watched(url, base, pid, number))
        finally:
            stop.set()
            await load


async def _load(storage: Storage, busy: list[str], stop: asyncio.Event) -> None:
    async def work(_job: Any) -> None:
        return None

    workers = [Worker(name, work, storage, concurrency=2) for name in busy]
    queues = [Queue[Any, Any](name, storage) for name in busy]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    while not stop.is_set():
        for queue in queues[:: max(1, len(queues) // 10)]:
            await queue.add("x")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*tasks)
    for queue in queues:
        await queue.close()


async def _watched(url: str, base: str, pid: int, number: int) -> WatchCost:
    say(f"{number} browsers")
    pages = [OpenPage(base, "/", "pulse") for _ in range(number)]
    tasks = [asyncio.create_task(page.run()) for page in pages]
    try:
        # The pages are opened at the same time, which costs more than to follow them.
        opened = asyncio.gather(*(page.is_open.wait() for page in pages))
        waited: list[asyncio.Future[Any]] = [opened, *tasks]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(WATCHED_SECONDS / 3)
        before = [(page.refreshes, page.updates) for page in pages]
        async with connected(url) as wire:
            cost, used, began = await ServerCost.read(wire), used_seconds(pid), time.monotonic()
            await asyncio.sleep(WATCHED_SECONDS)
            seconds = time.monotonic() - began
            spent = (await ServerCost.read(wire)).since(cost).processor
            used = used_seconds(pid) - used
        refreshes = sum(page.refreshes - old for page, (old, _) in zip(pages, before, strict=True))
        updates = sum(page.updates - old for page, (_, old) in zip(pages, before, strict=True))
        if updates < number:
            raise RuntimeError(f"{number} browsers got {updates} events in {seconds:.0f} s, so they did not follow")
        return WatchCost(number, used / seconds, spent / seconds, refreshes, updates)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- many jobs --------------------------------------------------------------------------------------------------------


async def many_jobs(url: str, count: int, figures: DashboardFigures) -> None:
    """Measure lists and searches in a queue with many jobs."""
    say(f"{count:,} jobs")
    async with open_storage(url) as storage, Queue[Any, Any]("large", storage) as queue:
        await _fill(queue, count)
        async with dashboard(url) as (base, _):
            for text in FILTERS:
                title = f"`{text}`" if text else "no filter"
                path = f"/api/v1/jobs?limit=50&filter={quote(text)}"
                figures.searches.append(await _searched(url, f"jobs, {title}", partial(_pages, base, path)))
            figures.searches.append(await _searched(url, "page of the jobs", lambda: _page(base, "/jobs")))
            figures.searches.append(await _searched(url, "overview", lambda: _page(base, "/")))
    say("the time of the server for each call")
    figures.calls += await call_costs(url, count, count // 5, count // 20)


async def _fill(queue: Queue[Any, Any], count: int) -> None:
    delayed = JobOptions(delay=86_400)
    for start in range(0, count, 2_000):
        if start and start % 100_000 == 0:
            say(f"{start:,} jobs are stored")
        await queue.add_bulk([_input(n, delayed) for n in range(start, min(start + 2_000, count))])


def _input(n: int, delayed: JobOptions) -> tuple[str, dict[str, int], JobOptions]:
    name = "rare" if n % 100_000 == 99_999 else f"send-{n % 3}"
    options = delayed if n % 10 > 6 else JobOptions(key=f"tenant-{n % 1000}") if n % 10 == 0 else JobOptions()
    return name, {"n": n}, options


async def _searched(url: str, title: str, act: Callable[[], Awaitable[tuple[list[float], int, int]]]) -> SearchCost:
    say(title)
    async with connected(url) as wire:
        before = await ServerCost.read(wire)
        pages, found, searched = await act()
        calls = (await ServerCost.read(wire)).since(before).calls
    return SearchCost(title, calls.get("fcall", 0) + calls.get("fcall_ro", 0), pages, found, searched)


async def _pages(base: str, path: str) -> tuple[list[float], int, int]:
    """Request up to five pages of a search. Return their times, the found jobs and the searched ones."""
    client, seconds, found, searched, cursor = BrowserConnection(base), list[float](), 0, 0, ""
    for _ in range(5):
        began = time.perf_counter()
        document = json.loads(await client.get(path + (f"&cursor={cursor}" if cursor else "")))
        seconds.append(time.perf_counter() - began)
        found, searched, cursor = found + len(document["jobs"]), searched + document["searched"], document["cursor"]
        if not cursor:
            break
    client.close()
    return seconds, found, searched


async def _page(base: str, path: str) -> tuple[list[float], int, int]:
    page = await timed(base, path, path, 5)
    return page.seconds, 0, 0


# -- the report -------------------------------------------------------------------------------------------------------


def watched_rows(found: DashboardFigures) -> str:
    """Return the rows of the table of browsers."""
    return "\n".join(
        f"| {each.viewers} | {each.process:.1%} | {each.server:.1%} | {each.refreshes / WATCHED_SECONDS:.1f} | "
        f"{each.updates / WATCHED_SECONDS:.1f} |"
        for each in found.watched
    )


def search_rows(found: DashboardFigures) -> str:
    """Return the rows of the table of searches."""
    return "\n".join(
        f"| {each.title} | {each.calls} | {median(each.pages) * 1000:.0f} ms | {each.found:,} | {each.searched:,} |"
        for each in found.searches
    )


def report_of(found: DashboardFigures) -> str:
    """Return the report."""
    loads = ", ".join(f"{each:.1f}" for each in found.loads)
    pages = "\n".join(page.row for page in found.pages)
    calls = "\n".join(each.row for each in found.calls)
    return f"""# The dashboard: figures

This page has the cost of the [dashboard](../dashboard.md) and of the [HTTP API](../http-api.md) with many queues,
viewers and jobs. `make bench-dashboard` measures them again. Clients, the server and `glidemq ui` share one machine
with {os.cpu_count()} processors. The load of the machine in the last minute was {loads} at the beginning of the two
parts and at the end. This benchmark alone has a load of about 1.5. Under a higher load, all times include waits for a
processor.

## {found.queues:,} queues

One queue in {round(1 / BUSY_SHARE)} has a worker, and some of these get jobs all the time.

| {REQUESTS} requests each | median | longest | size |
|---|---|---|---|
{pages}

Browsers show the overview for {WATCHED_SECONDS:g} seconds. They follow the stream of events and load the new state of
the page, as its script does.

| Browsers | `glidemq ui`, of one core | server, of one core | refreshes a second | events a second |
|---|---|---|---|---|
{watched_rows(found)}

The server's share includes the jobs, which are the same in each row.

## {found.jobs:,} jobs in one queue

A row has up to five pages of 50 jobs. A page ends after 10,000 searched jobs or two seconds, and has a cursor for the
next one.

| Request | calls | median of a page | found | searched |
|---|---|---|---|---|
{search_rows(found)}

### The time of the server for each call

No call may occupy the server for more than 5 ms. The server reports the duration of each call, in which it may also
have waited for a processor. So each call of a request is sent {PASSES} times more, and its cost is the shortest of
these durations: the calls only read, so they do the same work each time. The table has the call with the highest cost,
and the longest duration that was observed. A request of `find` has up to {PAGES} pages. The queue `large` is the one
above. The queue `ended` has {found.jobs // 5:,} delayed jobs and {found.jobs // 20:,} failed ones.

| Request | calls | highest cost of a call | longest duration | cost of all calls |
|---|---|---|---|---|
{calls}

The position of a delayed or failed job is known, so `get_jobs` begins there with one call. Plain waiting jobs are
entries of a stream, which has no positions: `get_jobs` reads the ids of all jobs before `start`.
"""


async def measure(queues: int, viewers: list[int], jobs: int, *, write: bool) -> None:
    """Measure on embedded servers, and write the report."""
    figures = DashboardFigures(queues, jobs)
    async with asyncio.timeout(LONGEST_SECONDS):
        figures.loads.append(os.getloadavg()[0])
        with running_server() as url:
            await many_queues(url, queues, viewers, figures)
        if jobs:
            figures.loads.append(os.getloadavg()[0])
            with running_server() as url:
                await many_jobs(url, jobs, figures)
    figures.loads.append(os.getloadavg()[0])
    text = report_of(figures)
    if write:
        REPORT.write_text(text, encoding="utf-8")
    print(text)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--viewers", type=int, nargs="*", default=[1, 50])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--dry", action="store_true", help="print the report, and do not store it")
    given = parser.parse_args()
    asyncio.run(measure(given.queues, given.viewers, given.jobs, write=not given.dry))


if __name__ == "__main__":
    main()
