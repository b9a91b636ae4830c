"""Calls whose request or reply is lost are repeated and take effect once. Without request numbers they do not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from glidemq_async import Job, JobOptions, KeepJobs, Queue, Worker
from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis.library import Library, shipped
from tests.crash.cutting_proxy import CUTS, Cut, CuttingProxy
from tests.crash.size import scaled, seconds
from tests.support.servers import Server, standalone
from tests.support.short_calls import one_job_a_call

pytestmark = pytest.mark.crash

ADD_CUTS = scaled(300)
CLAIM_CUTS = scaled(300)
DIRECT_CUTS = max(40, scaled(40))
DIRECT_SLOTS = 16
KEEP_ALL = KeepJobs()
_REPLAY = "  local kept = redis.call('GET', key)\n"
#: The library without the memory of its request channels: a repeated call takes effect twice.
FORGETFUL = Library(shipped().text.replace(_REPLAY, "  local kept = nil\n"))


class Line:
    """A server, a connection to it that can be cut, and one that cannot."""

    def __init__(self, server: Server, proxy: CuttingProxy, library: Library) -> None:
        self.proxy = proxy
        self._server = server
        self._library = library

    def through_proxy(self) -> RedisStorage:
        return RedisStorage(Endpoint(path=self.proxy.path), library=self._library)

    def direct(self) -> RedisStorage:
        return RedisStorage(Endpoint(path=self._server.path), library=self._library)


@asynccontextmanager
async def line(draw: random.Random, library: Library | None = None) -> AsyncGenerator[Line]:
    async with standalone(unix=True) as server:
        assert server.path is not None
        async with CuttingProxy(server.path, f"{server.path}.cut", draw).serving() as proxy:
            yield Line(server, proxy, library or shipped())


async def add_under_cuts(way: Line, queue_name: str, cuts: int, draw: random.Random) -> list[int]:
    """Add numbers one by one, in bulk and concurrently, each call cut once or twice; return the numbers.

    Most are plain jobs, and some bulks contain other jobs too, because these two kinds of adds are different calls.
    """
    numbers: list[int] = []
    async with way.through_proxy() as storage, Queue[int, None](queue_name, storage) as queue:
        while way.proxy.made.total() < cuts:
            way.proxy.arm(b"_add", *draw.choices(CUTS, k=draw.choice((1, 2))))
            some = list(range(len(numbers), len(numbers) + draw.choice((1, 5))))
            kind = draw.random()
            if kind < 0.3:
                await queue.add_bulk(("n", number) for number in some)
            elif kind < 0.6:
                await queue.add_bulk(("n", number, JobOptions(lifo=number % 2 == 0)) for number in some)
            else:
                await asyncio.gather(*(queue.add("n", number) for number in some))
            await way.proxy.all_made()
            numbers += some
    return numbers


async def stored_numbers(way: Line, queue_name: str) -> tuple[list[int], Sequence[object]]:
    async with way.direct() as storage, Queue[int, None](queue_name, storage) as queue:
        return sorted([job.data async for job in queue.iter_jobs("waiting")]), await queue.check()


@pytest.mark.timeout(seconds(30))
async def test_an_add_whose_reply_is_lost_adds_one_job() -> None:
    draw = random.Random(1)
    async with line(draw) as way:
        numbers = await add_under_cuts(way, "adds", ADD_CUTS, draw)
        assert all(way.proxy.made[cut] > ADD_CUTS / 10 for cut in CUTS)
        assert await stored_numbers(way, "adds") == (numbers, [])


async def test_a_lost_reply_doubles_jobs_without_request_numbers() -> None:
    assert FORGETFUL.text != shipped().text
    draw = random.Random(2)
    async with line(draw, FORGETFUL) as way:
        numbers = await add_under_cuts(way, "adds", 30, draw)
        stored, _ = await stored_numbers(way, "adds")
        assert len(stored) > len(numbers)
        assert set(stored) == set(numbers)


class Runs(Counter[int]):
    """Return how often a worker behind the proxy ran each number."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = asyncio.Event()

    async def __call__(self, job: Job[int, int]) -> int:
        self[job.data] += 1
        self.progress.set()
        await asyncio.sleep(0.002)
        return job.fence


async def work_under_cuts(
    way: Line,
    jobs: int,
    cuts: int,
    draw: random.Random,
    runs: Runs,
    *,
    concurrency: int = 4,
    marker: bytes = b"_settleAndClaim",
) -> None:
    """Work behind the proxy until every job has run and this many claim-and-settle calls were cut."""
    async with way.direct() as storage, Queue[int, int]("claims", storage) as queue:
        await queue.add_bulk(("n", number, JobOptions(keep_completed=KEEP_ALL)) for number in range(jobs))
        async with (
            way.through_proxy() as through,
            # The lease is longer than the test, so a stranded job stays stranded.
            Worker("claims", runs, through, concurrency=concurrency, lock_duration=600, handle_signals=False),
        ):
            while way.proxy.made.total() < cuts:
                way.proxy.arm(marker, *_some_cuts(draw))
                await way.proxy.all_made()
                # Otherwise the proxy would cut the same call again and again.
                runs.progress.clear()
                await runs.progress.wait()
            while (await queue.get_job_counts())["completed"] < jobs:
                runs.progress.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(runs.progress.wait(), 0.05)


async def expect_single_runs(way: Line, jobs: int) -> None:
    """Check that all of these jobs have completed in their first run."""
    async with way.direct() as storage, Queue[int, int]("claims", storage) as queue:
        completed = [job async for job in queue.iter_jobs("completed")]
        assert sorted(job.data for job in completed) == list(range(jobs))
        assert {(job.return_value, job.fence, job.stalled_count) for job in completed} == {(1, 1, 0)}
        assert await queue.check() == []


def _some_cuts(draw: random.Random) -> list[Cut]:
    return draw.choices(CUTS, k=draw.choice((1, 1, 1, 2)))


@pytest.mark.timeout(seconds(30))
@pytest.mark.parametrize("library", [shipped(), one_job_a_call()], ids=["whole calls", "one job a call"])
async def test_a_lost_reply_of_a_claim_neither_loses_nor_repeats_a_job(library: Library) -> None:
    draw, runs, jobs = random.Random(3), Runs(), 8 * CLAIM_CUTS
    async with line(draw, library) as way:
        async with asyncio.timeout(seconds(20)):
            await work_under_cuts(way, jobs, CLAIM_CUTS, draw, runs)
        assert all(way.proxy.made[cut] > CLAIM_CUTS / 10 for cut in CUTS)
        assert runs == dict.fromkeys(range(jobs), 1)
        await expect_single_runs(way, jobs)


@pytest.mark.timeout(seconds(30))
async def test_a_lost_reply_of_a_direct_claim_neither_loses_nor_repeats_a_job() -> None:
    draw, runs = random.Random(6), Runs()
    jobs = DIRECT_SLOTS * 4 * DIRECT_CUTS
    async with line(draw) as way:
        async with asyncio.timeout(seconds(20)):
            await work_under_cuts(way, jobs, DIRECT_CUTS, draw, runs, concurrency=DIRECT_SLOTS, marker=b"_finishClaim")
        assert all(way.proxy.made[cut] > DIRECT_CUTS / 20 for cut in CUTS)
        assert runs == dict.fromkeys(range(jobs), 1)
        await expect_single_runs(way, jobs)


async def test_a_lost_claim_strands_jobs_without_request_numbers() -> None:
    draw, runs = random.Random(4), Runs()
    async with line(draw, FORGETFUL) as way:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await work_under_cuts(way, 100, 12, draw, runs)
        async with way.direct() as storage, Queue[int, int]("claims", storage) as queue:
            # The server claimed them for the worker, which never received them. It released them when the worker was
            # closed.
            left = [job async for job in queue.iter_jobs("waiting")]
            assert left
            assert all(job.fence == 1 and job.data not in runs for job in left)
