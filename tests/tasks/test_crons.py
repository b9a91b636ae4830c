"""Cron tasks: opening the app upserts them, and any number of processes fires each time once."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQ, Queue, QueueEvent, QueueEvents, Schedule
from glidemq_async.ops import Ops, Setting
from glidemq_async.storage import FileStorage, Storage
from glidemq_async.tasks.app import core_of

PATIENCE = 20
ROOT = Path(__file__).parents[2]


async def test_a_cron_is_upserted_with_its_schedule_and_its_options(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name)

    @mq.cron("30 2 * * *", tz="Europe/Madrid", missed="fire-once", attempts=3, overlap="skip")
    async def nightly(of: str = "all") -> str:
        return of

    for _ in range(2):
        async with mq:
            [found] = await mq.queue(name).get_job_schedulers()
            assert (found.id, found.name, found.options.attempts) == ("nightly", "nightly", 3)
            assert found.schedule == Schedule(cron="30 2 * * *", tz="Europe/Madrid", missed="fire-once", overlap="skip")
            assert found.fired == 0
    async with mq, mq.worker():
        job = await mq.queue(name).trigger_job_scheduler("nightly")
        assert await job.result(PATIENCE) == "all"
        assert await (await nightly.add("some")).result(PATIENCE) == "some"
    async with mq:
        assert await mq.queue(name).remove_job_scheduler("nightly")


async def test_the_settings_show_a_declared_schedule_until_it_is_changed_by_hand(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name, version="2026.11")

    @mq.cron("30 2 * * *", tz="Europe/Madrid")
    async def nightly() -> None: ...

    async def shown(ops: Ops) -> tuple[str | None, str | None, str, str]:
        [row] = await ops.schedules([name])
        found = {one.key: one for one in await ops.settings(name) if one.name == "schedule"}
        one = found.get("nightly", Setting("schedule", "nightly", None, None, "none"))
        assert row.origin == one.origin
        return one.value, one.declared, one.origin, one.who

    code = "30 2 * * * (Europe/Madrid)"
    async with mq, Ops.of(mq) as ops:
        assert await shown(ops) == (code, code, "code", "version 2026.11")
        await ops.pause_schedule(name, "nightly", note="a full disk")
        assert await shown(ops) == ("paused", code, "operator", ops.actor.name)
        await ops.release_hold(name, "schedule", key="nightly")
        assert (await shown(ops))[2] == "code"
        await mq.queue(name).upsert_job_scheduler("nightly", every=90)
        assert await shown(ops) == (None, None, "none", "")
        assert (await ops.schedules([name]))[0].schedule == "every 90 s"
    async with mq, Ops.of(mq) as ops:
        assert await shown(ops) == (code, code, "code", "version 2026.11")
        assert await ops.remove_schedule(name, "nightly")
        assert [one.name for one in await ops.settings(name) if one.name == "schedule"] == []


async def test_a_concurrent_connect_waits_until_the_app_is_open(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name)

    @mq.cron("0 0 1 1 *")
    async def yearly() -> None: ...

    first = asyncio.create_task(mq.connect())
    await asyncio.sleep(0)
    await mq.connect()
    assert first.done()
    assert await mq.queue(name).remove_job_scheduler("yearly")
    # One close is sufficient, even during another connect.
    await mq.close()
    second = asyncio.create_task(mq.connect())
    await asyncio.sleep(0)
    await mq.close()
    await second
    core_of(mq).relocate(storage)  # which an open app refuses
    async with mq:
        assert await mq.queue(name).remove_job_scheduler("yearly")
    await mq.close()


async def test_a_single_worker_upserts_and_fires(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name)
    ran = asyncio.Semaphore(0)

    @mq.cron(Schedule(every=0.05, limit=2))
    def pulse() -> None:
        loop.call_soon_threadsafe(ran.release)

    loop = asyncio.get_running_loop()
    async with mq.worker():
        async with asyncio.timeout(PATIENCE):
            await ran.acquire()
            await ran.acquire()
    async with mq:
        found = await mq.queue(name).get_job_scheduler("pulse")
        assert found is not None
        assert (found.fired, found.next_at) == (2, None)
        await mq.queue(name).remove_job_scheduler("pulse")


FIRE_TIMES = 12
PROGRAM = """
import asyncio, sys
from glidemq_async import GlideMQ, Schedule

mq = GlideMQ(sys.argv[1])

@mq.cron(Schedule(every=0.1, limit=12))
async def pulse() -> None: ...

async def main() -> None:
    worker = mq.worker(handle_signals=False)
    async with mq, worker:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.mark.timeout(60)
async def test_many_processes_fire_each_time_once(tmp_path: Path) -> None:
    url = FileStorage(str(tmp_path / "store"), linger=1).url
    mq = GlideMQ(url)

    @mq.task
    async def pulse() -> None: ...

    async with mq:
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                url,
                cwd=ROOT,
                stdin=PIPE,
                stdout=PIPE,
            )
            for _ in range(2)
        ]
        try:
            async with asyncio.timeout(40):
                for process in processes:
                    assert process.stdout is not None
                    assert await process.stdout.readline() == b"ready\n"
                await _completed(mq.queue("default"), FIRE_TIMES)
                for process in processes:
                    await process.communicate(b"\n")
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        queue = mq.queue("default")
        found = await queue.get_job_scheduler("pulse")
        assert found is not None
        assert (found.fired, found.next_at) == (FIRE_TIMES, None)
        jobs = await queue.get_jobs("completed")
        assert [job.fence for job in jobs] == [1] * FIRE_TIMES
        fire_times = sorted(int(job.id.partition("@")[2]) for job in jobs)
        assert [later - fire_time for fire_time, later in pairwise(fire_times)] == [100] * (FIRE_TIMES - 1)


async def _completed(queue: Queue[Any, Any], jobs: int) -> None:
    """Wait until this many jobs of a queue have been completed since its beginning."""
    async with QueueEvents(queue.name, queue.storage, after="0") as events:
        async for event in events:
            jobs -= isinstance(event, QueueEvent) and event.kind == "completed"
            if not jobs:
                return
