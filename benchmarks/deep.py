"""The cost of calls while a million jobs wait: one fill for each kind of job, and all measurements on it.

Function calls drive the queue without a worker, because the server's share is measured. A second queue on the same
server holds few jobs. The two queues take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgpack

from glidemq_async import Queue
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed
from glidemq_async.options.job_options import JobOptions, JobOptionsDict
from glidemq_async.options.stored_options import pack_extra
from glidemq_async.stored.record import route_of

from . import kinds
from .bench import PAYLOAD, RESULT, Bench, expect
from .meter import Metrics, Rows
from .server import ServerCost
from .slow_log import durations_of

BATCH: Final = 100
FILL_BATCH: Final = 500
CHUNK: Final = 500
CHUNKS: Final = 40
SHALLOW: Final = 1_000
LEASE_MS: Final = 600_000
CHANGES: Final = {"revoke": "revokeJob", "change_priority": "changePriority", "remove": "removeJob"}
DATA: Final[bytes] = msgpack.packb(PAYLOAD)
COMPLETED: Final = Completed(msgpack.packb(RESULT))
KINDS: Final = {"plain": kinds.plain, "prioritized": kinds.prioritized, "keyed": kinds.keyed}
TURNS: Final = ("plain", "keyed")


class Driven:
    """A queue that is driven by function calls, without a worker."""

    def __init__(self, queue: Queue[Any, Any], name: str, options_of: Callable[[int], JobOptionsDict]) -> None:
        self.name = name
        self.functions = Functions(queue.storage, f"glide:{{{name}}}")
        self._channel, self._options_of = RequestChannel("bench"), options_of
        self.added = 0

    async def add(self, jobs: int, batch: int = BATCH) -> None:
        """Add jobs, `batch` of them in each call."""
        for start in range(0, jobs, batch):
            count = min(batch, jobs - start)
            await self.functions.add.jobs([self._request(self.added + number) for number in range(count)])
            self.added += count

    def _request(self, number: int) -> AddRequest:
        extra = pack_extra(JobOptions(**self._options_of(number)))
        return AddRequest("", "job", DATA, b"", extra)

    async def work(self, jobs: int) -> None:
        """Claim jobs and complete them, a batch in each call. A call that took long leaves a part to the next one."""
        running: list[ClaimedJob] = []
        unsettled = 0
        done = claimed = 0
        while done < jobs:
            slots = min(BATCH - unsettled, jobs - claimed)
            request = self.functions.settle.request(self._channel, "bench", slots, LEASE_MS, subscribed=False)
            for job in running:
                request.settle(job.id, job.entry, _key_of(job), COMPLETED)
            reply = await self.functions.settle.send(request)
            if not reply.settled and not reply.jobs:
                raise RuntimeError(f"claims of {self.name}: a call neither settled nor claimed; the run is void")
            done += reply.settled
            claimed += len(reply.jobs)
            unsettled = len(running) - reply.settled
            running = [*running[reply.settled :], *reply.jobs]

    async def change(self, change: str, job_id: str) -> str:
        """Make one change to a waiting job; return its reply code."""
        if change == "change_priority":
            return await self.functions.changes.set_priority(job_id, 7)
        jobs = self.functions.jobs
        return (await (jobs.revoke(job_id) if change == "revoke" else jobs.remove(job_id))).code


def _key_of(job: ClaimedJob) -> str | None:
    """Return the key of a claimed job, which workers send with its fencing token."""
    return route_of(job.history.route).key if job.history else None


async def _turns(bench: Bench, kind: str, queues: Sequence[tuple[str, Driven]], chunks: int) -> Rows:
    """Let the queues take turns at adding and working; return the medians of the turns' costs."""
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
    """Revoke, change and remove waiting jobs in all parts of the queue; return the server's time for each call."""
    rows: Rows = {}
    middle = queue.added // 2
    step = middle // (len(CHANGES) * count)
    for position, (change, function) in enumerate(CHANGES.items()):
        async with durations_of(bench.wire, function) as taken:
            for number in range(count):
                job_id = str(middle + 1 + (number * len(CHANGES) + position) * step)
                if await queue.change(change, job_id) not in ("ok", "revoked"):
                    raise RuntimeError(f"{change} of job {job_id} was refused; the run is void")
        rows[f"deep, {kind}: {change}"] = taken.metrics()
    return rows


async def _deep(kind: str, bench: Bench, jobs: int, count: int) -> Rows:
    # The first half of the jobs is left to the claims.
    chunks = max(1, min(CHUNKS, jobs // 4 // CHUNK))
    rows: Rows = {}
    async with Queue[Any, Any]("deep", bench.url) as queue, Queue[Any, Any]("shallow", bench.url) as other:
        await other.connect()
        deep, shallow = Driven(queue, "deep", KINDS[kind]), Driven(other, "shallow", KINDS[kind])
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
