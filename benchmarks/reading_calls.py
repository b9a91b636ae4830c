"""The time of the server for each call of lists and searches, without the waits of a busy machine.

The server reports the duration of each call, in which it may also have waited for a processor. So each request records
its calls, and the same calls are sent five times more. They only read, so they do the same work each time. The cost of
a call is the shortest of its five durations.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from glidemq_async import JobOptions, Queue, UnrecoverableError, Worker
from glidemq_async.functions.calling import Arg, Wait
from glidemq_async.functions.loader import function_name
from glidemq_async.ops import Ops
from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.wire import Wire

from .server import ServerCost, ask, connected

PASSES: Final = 5
PAGES: Final = 5
"""Number of pages of a search."""
FILTERS: Final = (
    "queue:large",
    "queue:large state:waiting",
    "queue:large state:delayed",
    "queue:large name:rare",
    "queue:large key:tenant-70",
    "queue:large state:waiting name:send* key:tenant-70",
    "queue:large data.n:>99999990",
    'queue:large error:"nothing"',
    "queue:ended state:failed",
    'queue:ended state:failed error:"nothing"',
    "queue:ended state:delayed name:nobody",
)
_Read = tuple[str, str, Sequence[Arg]]


@dataclass
class CallCost:
    """The calls of a request: their number, the longest one by its shortest duration, and the longest duration."""

    title: str
    calls: int
    cost: float
    total: float
    observed: float

    @property
    def row(self) -> str:
        """The row of the report."""
        return (
            f"| {self.title} | {self.calls:,} | {self.cost * 1000:.2f} ms | {self.observed * 1000:.2f} ms | "
            f"{self.total * 1000:,.0f} ms |"
        )


class RecordingStorage(RedisStorage):
    """A storage that records the calls that only read."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.reads: list[_Read] = []

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Call a function, and record it."""
        if readonly:
            self.reads.append((function, key, args))
        return await super().call(
            function, key, args, readonly=readonly, timeout=timeout, wait=wait, messages_first=messages_first
        )


async def fill_ended(storage: RedisStorage, delayed: int, failed: int) -> None:
    """Fill the queue `ended` with delayed jobs and failed ones."""

    async def fail(_job: Any) -> None:
        raise UnrecoverableError("out of paper")

    logging.getLogger("glidemq_async").setLevel(logging.CRITICAL)  # each failure would be a line
    options, kept = JobOptions(delay=86_400), JobOptions(keep_failed=True)
    async with Queue[Any, Any]("ended", storage) as queue:
        for start in range(0, delayed, 2_000):
            await queue.add_bulk([("later", {"n": n}, options) for n in range(start, min(start + 2_000, delayed))])
        for start in range(0, failed, 2_000):
            await queue.add_bulk([("broken", {"n": n}, kept) for n in range(start, min(start + 2_000, failed))])
        async with Worker(queue.name, fail, storage, concurrency=200) as worker:
            await worker.run(until_empty=True)


async def call_costs(url: str, count: int, delayed: int, failed: int) -> list[CallCost]:
    """Measure lists and searches in the queue `large` with `count` jobs, and in the queue `ended`."""
    found: list[CallCost] = []
    async with RecordingStorage(Endpoint(path=urlsplit(url).path)) as storage:
        await fill_ended(storage, delayed, failed)
        async with Ops(storage) as ops, connected(url) as wire:
            for text in FILTERS:

                async def search(text: str = text) -> None:
                    cursor: str | None = None
                    for _ in range(PAGES):
                        cursor = (await ops.find(text, cursor=cursor)).cursor
                        if cursor is None:
                            return

                found.append(await _cost(wire, storage, f"find `{text}`", search))
            large, ended = await _opened(storage, "large"), await _opened(storage, "ended")
            deep = [
                (large, "waiting", 0),
                (large, "waiting", count // 2),
                (large, "delayed", count // 4),
                (ended, "delayed", delayed - 50),
                (ended, "failed", 0),
                (ended, "failed", failed - 50),
            ]
            for queue, state, start in deep:

                async def listed(queue: Queue[Any, Any] = queue, state: Any = state, start: int = start) -> None:
                    await queue.get_jobs(state, start, start + 49)

                title = f"`get_jobs` of `{queue.name}`, {state}, from {start:,}"
                found.append(await _cost(wire, storage, title, listed))
            await large.close()
            await ended.close()
    return found


async def _opened(storage: RedisStorage, name: str) -> Queue[Any, Any]:
    queue = Queue[Any, Any](name, storage)
    await queue.connect()
    return queue


async def _cost(wire: Wire, storage: RecordingStorage, title: str, act: Callable[[], Awaitable[None]]) -> CallCost:
    storage.reads.clear()
    await act()
    reads = storage.reads.copy()
    passes = [await _durations(wire, reads) for _ in range(PASSES)]
    costs = [min(each) for each in zip(*passes, strict=True)]
    return CallCost(title, len(reads), max(costs), sum(costs), max(max(each) for each in passes))


async def _durations(wire: Wire, reads: Sequence[_Read]) -> list[float]:
    """Send the calls, and return their durations in seconds."""
    found: list[float] = []
    before = (await ServerCost.read(wire)).in_functions
    for function, key, args in reads:
        await ask(wire, "FCALL_RO", function_name(function), 1, key, *args)
        now = (await ServerCost.read(wire)).in_functions
        found.append(now - before)
        before = now
    return found
