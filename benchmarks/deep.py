"""What calls cost when a million jobs wait: one fill for each kind of job, and everything that is measured on it.

The queue is driven by bare calls of the functions, so that only the server's share is seen. A second queue on the same
server holds few jobs; the two take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgpack

from glidemq_async import Queue
from glidemq_async.functions.loader import function_name
from glidemq_async.options import JobOptionsDict
from glidemq_async.storage.wire import Reply, as_list

from . import kinds
from .bench import PAYLOAD, RESULT, Bench, expect
from .meter import Metrics, Rows
from .server import ServerCost, ask
from .slow_log import durations_of

BATCH: Final = 100
FILL_BATCH: Final = 500
CHUNK: Final = 500
CHUNKS: Final = 40
SHALLOW: Final = 1_000
LEASE_MS: Final = 600_000
KEEP_ALL: Final = "-1 -1"
CHANGES: Final = ("revoke", "change_priority", "remove")
DATA: Final = msgpack.packb(PAYLOAD)
ENDED: Final = msgpack.packb(RESULT)
KINDS: Final = {"plain": kinds.plain, "prioritized": kinds.prioritized, "keyed": kinds.keyed}
TURNS: Final = ("plain", "keyed")


class Driven:
    """A queue that is driven by bare calls."""

    def __init__(self, bench: Bench, name: str, options_of: Callable[[int], JobOptionsDict]) -> None:
        self.name = name
        self._wire, self._options_of = bench.wire, options_of
        self._number = self.added = 0

    async def call(self, function: str, *args: str | bytes | int) -> Reply:
        """Call a function that answers once a request."""
        self._number += 1
        base = f"glide:{{{self.name}}}"
        return await ask(self._wire, "FCALL", function_name(function), 1, base, "lane", self._number, *args)

    async def add(self, jobs: int, batch: int = BATCH) -> None:
        """Add jobs, with as many in each call as `batch` says."""
        for start in range(0, jobs, batch):
            args: list[str | bytes | int] = []
            for _ in range(min(batch, jobs - start)):
                options = self._options_of(self.added)
                self.added += 1
                args += ("", "job", DATA, "", msgpack.packb(options) if options else "")
            await self.call("addJob", len(args) // 5, *args)

    async def work(self, jobs: int, policy: str = "") -> None:
        """Claim jobs and complete them, a batch in each call."""
        ended: list[Reply] = []
        done = claimed = 0
        while done < jobs:
            slots = min(BATCH, jobs - claimed)
            args = [part for job in ended for part in _completed(job, policy)]
            reply = as_list(await self.call("settleAndClaim", "one", slots, LEASE_MS, "", len(ended), *args)) or []
            done += len(ended)
            ended = list(as_list(reply[2]) or [])
            claimed += len(ended)
            expect(f"claims of {self.name}", claimed - done, slots)


def _completed(job: Reply, policy: str) -> tuple[str | bytes, ...]:
    job_id, entry = (as_list(job) or [])[4:6]
    assert isinstance(job_id, bytes)
    assert isinstance(entry, bytes)
    return "c", job_id, entry, ENDED, policy


async def _turns(bench: Bench, kind: str, queues: Sequence[tuple[str, Driven]], chunks: int) -> Rows:
    """Let the queues take turns at adding and working; medians of what each turn cost."""
    found: dict[str, list[ServerCost]] = {}
    for _ in range(chunks):
        for depth, queue in queues:
            for step, work in (("addJob", queue.add), ("settleAndClaim", queue.work)):
                before = await ServerCost.read(bench.wire)
                await work(CHUNK)
                cost = (await ServerCost.read(bench.wire)).since(before)
                found.setdefault(f"{depth}, {kind}: {step}", []).append(cost)
    return {row: _medians(costs) for row, costs in found.items()}


def _medians(costs: Sequence[ServerCost]) -> Metrics:
    return {
        "command_us": statistics.median(cost.seconds["fcall"] for cost in costs) / CHUNK * 1e6,
        "server_us": statistics.median(cost.processor for cost in costs) / CHUNK * 1e6,
    }


async def _changes(bench: Bench, kind: str, queue: Driven, count: int) -> Rows:
    """Revoke, change and remove waiting jobs all over the queue; what each call took the server."""
    rows: Rows = {}
    middle = queue.added // 2
    step = middle // (len(CHANGES) * count)
    names = {"revoke": "revokeJob", "change_priority": "changePriority", "remove": "removeJob"}
    for position, change in enumerate(CHANGES):
        more = ("7",) if change == "change_priority" else ()
        wanted = {"revoke": b"revoked"}.get(change, b"ok")
        async with durations_of(bench.wire, names[change]) as taken:
            for number in range(count):
                job_id = middle + 1 + (number * len(CHANGES) + position) * step
                if await queue.call(names[change], str(job_id), *more) != wanted:
                    raise RuntimeError(f"{change} of job {job_id} was refused; the run is void")
        rows[f"deep, {kind}: {change}"] = taken.metrics()
    return rows


async def _deep(kind: str, bench: Bench, jobs: int, count: int) -> Rows:
    deep, shallow = (Driven(bench, name, KINDS[kind]) for name in ("deep", "shallow"))
    # The first half of the jobs is left to the claims.
    chunks = max(1, min(CHUNKS, jobs // 4 // CHUNK))
    rows: Rows = {}
    async with Queue[Any, Any]("deep", bench.url) as queue, Queue[Any, Any]("shallow", bench.url) as other:
        await other.connect()
        await deep.add(jobs, FILL_BATCH)
        expect("fill", await queue.count(), jobs)
        if kind in TURNS:
            await shallow.add(SHALLOW)
            rows |= await _turns(bench, kind, (("shallow", shallow), ("deep", deep)), chunks)
        rows |= await _changes(bench, kind, deep, count)
    return rows


DEEP_RUNS: Final[dict[str, Callable[[Bench, int, int], Awaitable[Rows]]]] = {
    f"deep, {kind}": partial(_deep, kind) for kind in KINDS
}
