"""Clients of two versions share a queue, as during a rolling upgrade: the function library and the jobs survive."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from glidemq_async import Job, Queue, Worker
from glidemq_async.functions.loader import source
from glidemq_async.storage.redis.library import Library
from glidemq_async.storage.redis.standalone import RedisStorage
from glidemq_async.storage.redis.wire import as_text
from tests.support.helpers import soon
from tests.support.servers import Server, redis7_binary, standalone
from tests.support.stores import endpoint_of

OLDER = Library(source(), "2.0.0.dev1")
NEWER = Library(source() + "\n-- a later text\n", "2.1.0")
JOBS = 30


@pytest.fixture(params=[False, True], ids=["embedded", "redis7"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    if request.param and redis7_binary() is None:
        pytest.skip("no redis-server on the PATH: install Debian's redis-server, or set GLIDEMQ_TEST_REDIS7")
    async with standalone(binary=redis7_binary() if request.param else None) as running:
        yield running


async def loaded(server: Server) -> str:
    return as_text(await server.command("FCALL_RO", NEWER.stamp_function, 0)).split()[0]


@pytest.mark.parametrize("order", [(OLDER, NEWER), (NEWER, OLDER)], ids=["older first", "newer first"])
async def test_two_versions_share_a_queue(server: Server, order: tuple[Library, Library]) -> None:
    runs: Counter[int] = Counter()
    served: set[str] = set()

    async with AsyncExitStack() as stack:
        queues: list[Queue[int, int]] = []
        for library in order:

            async def work(job: Job[int], version: str = library.version) -> int:
                runs[job.data] += 1
                served.add(version)
                return job.data

            storage = RedisStorage(endpoint_of(server), library=library)
            await stack.enter_async_context(storage)
            queues.append(await stack.enter_async_context(Queue[int, int]("q", storage)))
            await stack.enter_async_context(Worker("q", work, storage, concurrency=2))
        assert await loaded(server) == NEWER.version

        async def produce(queue: Queue[int, int], first: int) -> None:
            for number in range(first, first + JOBS):
                # The library is lost once on the way. The client that finds this loads its own, perhaps the older one.
                if number == JOBS // 2:
                    await server.command("FUNCTION", "FLUSH")
                job = await queue.add("n", number, key=f"k{number % 3}" if number % 2 else None)
                assert await job.result(20) == number

        await soon(asyncio.gather(produce(queues[0], 0), produce(queues[1], JOBS)), 40)
        assert await queues[0].check() == []
        assert (await queues[1].get_job_counts())["failed"] == 0
    assert runs == Counter(range(2 * JOBS))
    assert served == {OLDER.version, NEWER.version}
    # The next client of the newer version replaces an older library, and the older client does not put it back.
    for library in (NEWER, OLDER):
        async with RedisStorage(endpoint_of(server), library=library):
            assert await loaded(server) == NEWER.version
