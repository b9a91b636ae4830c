"""Slow links: a transfer that makes progress never times out. A link without progress does."""

from __future__ import annotations

import asyncio
import time

import pytest

from glidemq_async import Queue, Worker
from glidemq_async.errors import StorageUnavailable
from glidemq_async.jobs.job import Job
from glidemq_async.storage import Endpoint, RedisStorage
from glidemq_async.storage.redis import server
from tests.storage.small_library import KEY, LIBRARY
from tests.support.servers import Server, eventually
from tests.support.slow_link import SlowLink

PATIENCE = 0.5
"""Seconds without progress after which a connection times out in these tests."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections time out ten times sooner, so that a short transfer counts as a long one."""
    monkeypatch.setattr(server, "TRY_SECONDS", PATIENCE)


def _behind(link: SlowLink) -> RedisStorage:
    return RedisStorage(Endpoint("127.0.0.1", link.port), library=LIBRARY)


@pytest.mark.usefixtures("impatient")
async def test_a_transfer_may_take_many_times_the_time_limit(server: Server) -> None:
    async with SlowLink(server.port) as link:
        async with _behind(link) as storage:
            link.rate = 300_000
            value = bytes(900_000)
            began = time.monotonic()
            # 3 s for the request, 3 s for the reply, and a limit of 2 s for the call.
            assert await storage.call("echo", KEY, [value], timeout=2) == value
            assert time.monotonic() - began > 8 * PATIENCE
        assert link.connections == 1


@pytest.mark.usefixtures("impatient")
async def test_the_time_in_which_the_process_stands_still_does_not_count(server: Server) -> None:
    """The blocked event loop also runs the link, so no byte moves during that time."""
    async with SlowLink(server.port) as link:
        async with _behind(link) as storage:
            link.rate = 300_000
            value = bytes(300_000)
            call = asyncio.ensure_future(storage.call("echo", KEY, [value], timeout=2))
            for _ in range(3):
                await asyncio.wait([call], timeout=PATIENCE / 2)
                time.sleep(2 * PATIENCE)  # noqa: ASYNC251 - the test needs an event loop that is blocked
            assert await call == value
        assert link.connections == 1


@pytest.mark.usefixtures("impatient")
async def test_small_calls_wait_for_a_large_one_on_the_same_connection(server: Server) -> None:
    async with SlowLink(server.port) as link:
        async with _behind(link) as storage:
            link.rate = 300_000
            value = bytes(600_000)
            replies = await asyncio.gather(
                storage.call("echo", KEY, [value], timeout=1),
                *(storage.call("count", KEY, [f"{n}"], timeout=1) for n in range(20)),
            )
            assert replies[0] == value
            assert await storage.call("executions", KEY, []) == b"20"
        assert link.connections == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kilobytes", [0, 900], ids=["waiting for the reply", "during the request"])
async def test_a_silent_link_ends_in_time(server: Server, kilobytes: int) -> None:
    async with SlowLink(server.port) as link, _behind(link) as storage:
        link.rate = 300_000
        if kilobytes == 0:
            link.silence()
        call = asyncio.ensure_future(storage.call("echo", KEY, [bytes(kilobytes * 1000)], timeout=1.5))
        if kilobytes:
            await asyncio.wait([call], timeout=2 * PATIENCE)
            link.silence()
        began = time.monotonic()
        with pytest.raises(
            StorageUnavailable, match=r"echo got no reply .*tried for [1-9]\.\d s.*; the last failure was: .*in time"
        ):
            await call
        assert time.monotonic() - began < 1.5 + 6 * PATIENCE
        link.resume()
        link.rate = None
        assert await storage.call("echo", KEY, ["x"]) == b"x"


async def _ended(queue: Queue, count: int) -> bool:
    counts = await queue.get_job_counts()
    return counts["completed"] + counts["failed"] == count


async def test_all_jobs_run_behind_a_slow_link(server: Server) -> None:
    ran: list[object] = []

    async def handler(job: Job[object, object]) -> None:
        ran.append(job.id)

    async with Queue("slow", server.url) as queue:
        await queue.add("large", "x" * 900_000)
        for number in range(20):
            await queue.add("tiny", number)
        async with SlowLink(server.port, rate=150_000) as link:
            worker = Worker(
                "slow", handler, link.url, handle_signals=False, concurrency=30, lock_duration=5, max_stalled=3
            )
            async with worker:
                await eventually(lambda: _ended(queue, 21), "every job has ended", 60)
        assert (await queue.get_job_counts())["failed"] == 0
        assert set(ran) == {str(number) for number in range(1, 22)}


async def test_claims_become_small_enough_for_a_slow_link(server: Server) -> None:
    blocked, ran = asyncio.Event(), asyncio.Event()
    settled: list[str] = []
    lost: list[str] = []

    def on_completed(job: Job[object, object], _result: object) -> None:
        settled.append(job.id)

    def on_lost(job: Job[object, object]) -> None:
        lost.append(job.id)

    async def handler(job: Job[object, object]) -> None:
        if job.name == "block":
            blocked.set()
            await ran.wait()

    async with Queue("large", server.url) as queue:
        # A worker on a fast link whose only slot is taken: it sweeps, and so reclaims expired leases.
        async with Worker("large", handler, server.url, handle_signals=False, lock_duration=2):
            await queue.add("block")
            await blocked.wait()
            await queue.add_bulk([("large", "x" * 120_000)] * 40)
            # The first claim takes 24 jobs: 2.9 MB, 5.8 s on this link and longer than two leases.
            async with (
                SlowLink(server.port, rate=500_000) as link,
                Worker("large", handler, link.url, handle_signals=False, concurrency=40, lock_duration=2) as worker,
            ):
                worker.on("completed", on_completed)
                worker.on("lease_lost", on_lost)
                await eventually(lambda: _ended(queue, 40), "every large job has ended", 60)
            ran.set()
            await eventually(lambda: _ended(queue, 41), "every job has ended")
        assert (await queue.get_job_counts())["failed"] == 0
        assert len(settled) == len(set(settled)) == 40
        # Only the first claims were too large. Each later one was in time.
        assert len(lost) < 50


@pytest.mark.usefixtures("impatient")
async def test_a_job_with_a_large_payload_limit_passes_a_slow_link(server: Server) -> None:
    done = asyncio.Event()

    async def handler(job: Job[object, object]) -> None:
        if job.name == "large":
            done.set()

    async with SlowLink(server.port, rate=1_000_000) as link:
        # As 64 MB on a link of 64 Mbit/s: eight times the time limit in each direction.
        async with Queue("limit", link.url, payload_limit=8_000_000, timeout=2) as queue:
            await queue.add("large", "x" * 4_000_000)
            await queue.add_bulk([("tiny", number) for number in range(7)])
            async with Worker("limit", handler, link.url, handle_signals=False, concurrency=8, timeout=2):
                await asyncio.wait_for(done.wait(), 30)
                await eventually(lambda: _ended(queue, 8), "every job has ended", 30)
            counts = await queue.get_job_counts()
        assert (counts["completed"], counts["failed"]) == (8, 0)
