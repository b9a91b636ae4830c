"""Readers of streams while connections are cut, workers are replaced, and a zombie writes: each position once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from glidemq_async import Chunk, Job, Queue, Restarted, StorageUnavailable, Worker
from glidemq_async.storage.redis.library import Library, shipped
from tests.crash.cutting_proxy import CUTS
from tests.crash.size import seconds
from tests.crash.test_lost_replies import FORGETFUL, Line, line

pytestmark = pytest.mark.crash

READERS = [200, pytest.param(1_000, marks=pytest.mark.slow)]
JOBS = 20
CHUNKS = 40
REPLACED = 5
"""How often the worker is replaced."""
_CLIENTS = 4

AnyJob = Job[int, None]
AnyQueue = Queue[int, None]
Enough: TypeAlias = Callable[[Line, list[AnyJob]], Awaitable[bool]]
"""Returns whether the cuts of a run, whose jobs have ended, are enough."""
Items = list[tuple[str, tuple[int, int] | None]]
"""What a reader got: for each item its position, and the run and the number of a chunk, None for a new run."""


async def stream(job: AnyJob) -> None:
    """Stream numbered chunks, with the run that streams them."""
    for number in range(CHUNKS):
        await job.stream([job.fence, number])
        await asyncio.sleep(0.001)


def _shown(item: object) -> tuple[str, tuple[int, int] | None]:
    assert isinstance(item, Chunk | Restarted), item
    if isinstance(item, Restarted):
        return item.position, None
    run, number = item.value
    return item.position, (int(run), int(number))


async def stored_items(job: AnyJob) -> AsyncGenerator[tuple[str, tuple[int, int] | None]]:
    """Yield the items of a stream that has ended."""
    async for item in job.chunks():
        yield _shown(item)


async def read(queue: AnyQueue, job_id: str, draw: random.Random) -> Items:
    """Read a stream to its end, and drop the iterator now and then. A new one resumes after the last item."""
    got: Items = []
    while True:
        rest = draw.randint(1, 2 * CHUNKS)
        items = queue.chunks(job_id, got[-1][0] if got else None)
        try:
            async for item in items:
                # A position before another run comes again, because the reader has not passed it.
                if not (got and isinstance(item, Restarted) and _shown(item) == got[-1]):
                    got.append(_shown(item))
                rest -= 1
                if not rest:
                    break
            else:
                return got
        except StorageUnavailable:
            pass
        finally:
            await items.aclose()


@asynccontextmanager
async def cutting(way: Line, draw: random.Random) -> AsyncGenerator[None]:
    """Cut calls that read and write chunks, one after another, before and after they take effect."""

    async def cut() -> None:
        while True:
            way.proxy.arm(draw.choice((b"_addChunks", b"_readChunks")), draw.choice(CUTS))
            await way.proxy.all_made()

    task = asyncio.create_task(cut())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        way.proxy.arm(b"")


async def work(way: Line, queue: AnyQueue, jobs: list[AnyJob], lease: float, enough: Enough) -> None:
    """Run all jobs, and more of them until the cuts are enough.

    A worker that is replaced releases its jobs in the middle of their streams.
    """
    for turn in range(REPLACED + 1):
        async with (
            way.through_proxy() as storage,
            Worker[int, None](
                "streams",
                stream,
                storage,
                concurrency=8,
                shutdown_timeout=0,
                lock_duration=lease,
                handle_signals=False,
            ),
        ):
            if turn < REPLACED:
                await asyncio.sleep(0.15)
            else:
                # Not until the queue is empty: a job of a lost claim is active until its lease ends.
                await asyncio.gather(*(job.result() for job in jobs))
                while not await enough(way, jobs):
                    jobs.append(await queue.add("n", len(jobs)))
                    await jobs[-1].result()


async def many_cuts(way: Line, jobs: list[AnyJob]) -> bool:
    """Return whether many calls were cut."""
    return way.proxy.made.total() > 10


async def doubled(way: Line, jobs: list[AnyJob]) -> bool:
    """Return whether a chunk is stored twice."""
    values = [[value async for _, value in stored_items(job) if value is not None] for job in jobs]
    return any(len(each) > len(set(each)) for each in values)


async def read_all(
    readers: int, draw: random.Random, library: Library, enough: Enough, lease: float = 30
) -> tuple[list[Items], list[Items]]:
    """Return what each reader got, and what is stored of its stream."""
    async with line(draw, library) as way, way.direct() as direct, AnyQueue("streams", direct) as queue:
        jobs = [await queue.add("n", number) for number in range(JOBS)]
        async with way.through_proxy() as storage:
            clients = [AnyQueue("streams", storage) for _ in range(_CLIENTS)]
            ids = [jobs[number % JOBS].id for number in range(readers)]
            tasks = [asyncio.create_task(read(clients[n % _CLIENTS], ids[n], draw)) for n in range(readers)]
            async with cutting(way, draw):
                await work(way, queue, jobs, lease, enough)
            got = await asyncio.gather(*tasks)
            for client in clients:
                await client.close()
        stored = {job.id: [item async for item in stored_items(job)] for job in jobs}
        assert not await queue.check()
        return got, [stored[job_id] for job_id in ids]


@pytest.mark.timeout(seconds(60))
@pytest.mark.parametrize("readers", READERS)
async def test_no_reader_misses_or_repeats_a_chunk(readers: int) -> None:
    got, stored = await read_all(readers, random.Random(readers), shipped(), many_cuts)
    assert got == stored
    for items in stored[:JOBS]:
        runs: dict[int, list[int]] = {}
        for _, value in items:
            if value is not None:
                runs.setdefault(value[0], []).append(value[1])
        # A released run streams some of its chunks, the last one all of them, each once and in order.
        assert all(numbers == [*range(len(numbers))] for numbers in runs.values())
        assert len(runs[max(runs)]) == CHUNKS


@pytest.mark.timeout(seconds(60))
async def test_a_lost_reply_doubles_chunks_without_request_numbers() -> None:
    # Such a library also claims twice when the reply to a claim is lost. The jobs of the first claim then wait until
    # their leases end.
    found: list[bool] = []

    async def until_doubled(way: Line, jobs: list[AnyJob]) -> bool:
        found.append(await doubled(way, jobs))
        return found[-1]

    await read_all(JOBS, random.Random(7), FORGETFUL, until_doubled, lease=1)
    assert found[-1]
