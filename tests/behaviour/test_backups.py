"""A copy of the server's files brings back every job, as docs/deploying.md describes it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from glidemq_async import Job, Queue, UnrecoverableError, Worker
from glidemq_async.stored.record import State
from tests.support.helpers import soon
from tests.support.servers import Server, eventually, redis7_binary, standalone


@pytest.fixture(params=["redis7", "embedded"])
def binary(request: pytest.FixtureRequest) -> str | None:
    found = redis7_binary() if request.param == "redis7" else None
    if request.param == "redis7" and found is None:
        pytest.skip("no redis-server on the PATH: install Debian's redis-server, or set GLIDEMQ_TEST_REDIS7")
    return found


@pytest.fixture
async def server(binary: str | None) -> AsyncIterator[Server]:
    async with standalone("--appendonly", "yes", "--appendfsync", "everysec", binary=binary) as running:
        yield running


async def handle(job: Job[int]) -> int:
    if job.data < 0:
        raise UnrecoverableError("negative")
    return job.data


async def fill(queue: Queue[int, int], url: str) -> set[str]:
    """Add jobs in many states, run some of them, and return the ids of all."""
    jobs = [await queue.add("n", n) for n in range(20)] + [await queue.add("n", -1)]
    async with Worker("q", handle, url, concurrency=5) as worker:
        await soon(worker.run(until_empty=True), 30)
    jobs += [await queue.add("n", n) for n in range(50)]
    jobs += [await queue.add("n", n, delay=3600) for n in range(10)]
    jobs += [await queue.add("n", n, key=f"k{n % 3}") for n in range(10)]
    jobs += [await queue.add("n", n, priority=n + 1) for n in range(10)]
    await queue.upsert_job_scheduler("nightly", every=86_400)
    return {job.id for job in jobs}


async def back_up_snapshot(server: Server, target: Path) -> None:
    await server.command("BGSAVE")

    async def saved() -> bool:
        info = await server.info("persistence")
        return info["rdb_bgsave_in_progress"] == "0" and info["rdb_last_bgsave_status"] == "ok"

    await eventually(saved, "the snapshot is written")
    shutil.copy(server.directory / "dump.rdb", target / "dump.rdb")


async def back_up_append_only(server: Server, target: Path) -> None:
    # A rewrite replaces the files while they are copied.
    await server.command("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")

    async def quiet() -> bool:
        return (await server.info("persistence"))["aof_rewrite_in_progress"] == "0"

    await eventually(quiet, "no rewrite runs")
    await asyncio.to_thread(shutil.copytree, server.directory / "appendonlydir", target / "appendonlydir")
    await server.command("CONFIG", "SET", "auto-aof-rewrite-percentage", "100")


async def restore_snapshot(restored: Server) -> None:
    """Start without an append-only file, because a server with one does not read the snapshot; then switch it on."""
    await restored.start()
    await restored.command("CONFIG", "SET", "appendonly", "yes")

    async def rewritten() -> bool:
        info = await restored.info("persistence")
        return info["aof_enabled"] == "1" and {info["aof_rewrite_in_progress"], info["aof_rewrite_scheduled"]} == {"0"}

    await eventually(rewritten, "the append-only file is written")
    restored.kill()
    restored.options = ["--appendonly", "yes"]
    await restored.start()


async def all_jobs(queue: Queue[int, int]) -> set[str]:
    states: list[State] = ["waiting", "delayed", "prioritized", "key-waiting", "completed", "failed"]
    return {job.id for state in states for job in await queue.get_jobs(state, 0, 99_999)}


@pytest.mark.parametrize("kind", ["snapshot", "append-only"])
async def test_a_copy_of_a_busy_server_has_every_job(
    server: Server, binary: str | None, tmp_path: Path, kind: str
) -> None:
    restored = Server(tmp_path, ["--appendonly", "yes" if kind == "append-only" else "no"], binary=binary)
    async with Queue[int, int]("q", server.url) as queue:
        before = await fill(queue, server.url)

        async def add_more() -> None:
            while True:
                await queue.add("more", 1)

        adding = asyncio.create_task(add_more())
        try:
            await (back_up_snapshot if kind == "snapshot" else back_up_append_only)(server, tmp_path)
        finally:
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
    server.kill()
    try:
        await (restore_snapshot(restored) if kind == "snapshot" else restored.start())
        async with Queue[int, int]("q", restored.url) as queue:
            assert await queue.check() == []
            assert before <= await all_jobs(queue)
            assert [each.id for each in await queue.get_job_schedulers()] == ["nightly"]
            async with Worker("q", handle, restored.url, concurrency=20) as worker:
                await soon(worker.run(until_empty=True), 60)
            counts = await queue.get_job_counts()
            assert (counts["waiting"], counts["active"], counts["failed"]) == (0, 0, 1)
            assert await queue.check() == []
    finally:
        restored.kill()
