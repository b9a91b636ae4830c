"""Each fire time of a job scheduler fires exactly once, whichever processes try, come, go or die."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import (
    Queue,
)
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.schedulers import DueScheduler, Firing
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE, AnyQueue, listening, soon, until
from tests.support.recording_storage import Relay
from tests.support.schedulers import FAR, are_every, base_of, ended_schedule, fire_times, scheduler_of
from tests.support.stores import RunningStore


@asynccontextmanager
async def crowd(storage: Storage, name: str, count: int) -> AsyncGenerator[list[AnyQueue]]:
    """Open a queue for each of this many processes."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Queue[Any, Any](name, storage)) for _ in range(count)]


@pytest.mark.everywhere
async def test_many_processes_that_fire_the_same_times_add_each_job_once(queue: AnyQueue, storage: Storage) -> None:
    callers = [Functions(storage, base_of(queue)) for _ in range(12)]
    await queue.upsert_job_scheduler("s", every=0.05, limit=20)

    async def race(functions: Functions) -> int:
        won = 0
        async with asyncio.timeout(PATIENCE):
            while (await scheduler_of(queue)).next_at is not None:
                reply = await functions.schedulers.take("nobody")
                firings = [Firing(due, (due.fire_time,), 0, due.fire_time + 50) for due in reply.due]
                won += (await functions.schedulers.fire(firings, "default")).count(1) if firings else 0
        return won

    await asyncio.gather(*(race(functions) for functions in callers))
    found = await fire_times(queue)
    assert len(found) == 20
    assert are_every(found, 50)
    over = await scheduler_of(queue)
    assert (over.fired, over.skipped) == (20, 0)


async def test_many_processes_that_upsert_and_fire_add_each_job_once(storage: Storage, name: str) -> None:
    async with crowd(storage, name, 10) as queues:
        await asyncio.gather(
            *(each.upsert_job_scheduler("s", every=0.05, limit=30, missed="fire-all") for each in queues)
        )
        over = await ended_schedule(queues[0])
        found = await fire_times(queues[0])
    assert (len(found), over.skipped) == (30, 0)
    assert are_every(found, 50)


async def test_a_closed_process_releases_its_role_immediately(storage: Storage, name: str, store: RunningStore) -> None:
    async with Queue[Any, Any](name, storage) as second:
        first: AnyQueue = Queue(name, storage)
        await first.upsert_job_scheduler("s", every=0.05)
        asked = ("HGET", f"glide:{{{name}}}:schedule_roles", "first")
        async with listening(second) as events:
            await events.next()
            holder = await store.ask(*asked)
            assert holder is not None
            await first.close()
            # The other process may have taken the role since.
            assert await store.ask(*asked) != holder


@pytest.mark.everywhere
async def test_a_process_that_becomes_the_first_one_is_not_the_second_one_too(
    queue: AnyQueue, functions: Functions, store: RunningStore
) -> None:
    await queue.upsert_job_scheduler("s", every=3_600)
    holder = await store.ask("HGET", f"{base_of(queue)}:schedule_roles", "first")
    assert isinstance(holder, bytes)
    await functions.schedulers.leave(holder.decode())
    roles = [await functions.schedulers.take(process) for process in ("a", "b", "c")]
    assert [(role.holds_role, role.is_first) for role in roles] == [(True, True), (True, False), (False, False)]
    await functions.schedulers.leave("a")
    roles = [await functions.schedulers.take(process) for process in ("b", "c")]
    assert [(role.holds_role, role.is_first) for role in roles] == [(True, True), (True, False)]


async def test_processes_that_come_and_go_miss_no_fire_time(storage: Storage, name: str) -> None:
    """Each one closes while it is first, and another one takes over."""
    async with Queue[Any, Any](name, storage) as watcher:
        await watcher.upsert_job_scheduler("s", every=0.1, limit=30, missed="fire-all")
        while (await scheduler_of(watcher)).next_at is not None:
            async with Queue[Any, Any](name, storage) as passing:
                await passing.upsert_job_scheduler("s", every=0.1, limit=30, missed="fire-all")
                await asyncio.sleep(random.uniform(0.05, 0.4))
        found = await fire_times(watcher)
        assert (await scheduler_of(watcher)).skipped == 0
    assert len(found) == 30
    assert are_every(found, 100)


async def test_a_second_process_takes_over_when_the_first_one_dies(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        dead = Functions(storage, base_of(queue))
        await queue.upsert_job_scheduler("s", every=0.3, limit=8, missed="fire-all")
        first_slot = (await scheduler_of(queue)).next_at
        for _ in range(4):
            # A process that announces that it comes first, and never comes.
            [seen] = (await dead.scheduler_list.get(["s"]))[1]
            assert seen is not None
            await dead.schedulers.leave("dead")
            await dead.schedulers.take("dead")
            await asyncio.sleep(0.35)
        over = await ended_schedule(queue)
        found = await fire_times(queue)
    assert first_slot is not None
    assert over.fired == len(found) == 8
    assert over.skipped == 0
    assert are_every(found, 300)


async def test_a_process_with_an_outdated_schedule_cannot_fire(queue: AnyQueue, storage: Storage) -> None:
    functions = Functions(storage, base_of(queue))
    await queue.upsert_job_scheduler("s", every=0.001, end=datetime.now(tz=UTC) + timedelta(days=1))
    async with asyncio.timeout(PATIENCE):
        while not (due := (await functions.schedulers.take("nobody")).due):
            pass
    await queue.upsert_job_scheduler("s", **FAR)
    late = [Firing(due[0], (due[0].fire_time,), 0, due[0].fire_time + 1)]
    assert await functions.schedulers.fire(late, "default") == ["moved"]
    await queue.remove_job_scheduler("s")
    await queue.upsert_job_scheduler("s", **FAR)
    assert await functions.schedulers.fire(late, "default") == ["moved"]


async def test_a_fire_time_in_the_future_is_not_fired(queue: AnyQueue, storage: Storage) -> None:
    functions = Functions(storage, base_of(queue))
    made = await queue.upsert_job_scheduler("s", every=3600)
    assert made.next_at is not None
    _, [seen] = await functions.scheduler_list.get(["s"])
    assert seen is not None
    assert seen.next is not None
    due = DueScheduler("s", seen.record[b"rev"].decode(), seen.next, b"", "default")
    early = [Firing(due, (seen.next,), 0, seen.next + 3_600_000)]
    assert await functions.schedulers.fire(early, "default") == ["moved"]
    assert await fire_times(queue) == []


async def test_rapid_concurrent_upserts_leave_one_schedule(storage: Storage, name: str) -> None:
    async with crowd(storage, name, 6) as queues:
        await asyncio.gather(
            *(each.upsert_job_scheduler("s", every=1000 + n % 3, data=n) for n in range(10) for each in queues)
        )
        [left] = await queues[0].get_job_schedulers()
        assert left.schedule.every in (1000, 1001, 1002)
        assert left.next_at is not None
        assert await fire_times(queues[0]) == []


DYING = """
import asyncio, sys
from glidemq_async import Queue

async def main():
    async with Queue(sys.argv[1], sys.argv[2]) as queue:
        await queue.upsert_job_scheduler("s", every=0.2, missed="fire-all")
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@asynccontextmanager
async def another_process(name: str, url: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process that has just created the scheduler and is the first to fire it. It is killed at the end at the
    latest.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, name, url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await soon(process.stdout.readline()) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()


@pytest.mark.only_on("redis7")
async def test_a_killed_process_loses_no_fire_time(storage: Storage, name: str, store: RunningStore) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(another_process(name, store.url))
        relay = Relay(storage)
        queue: AnyQueue = await stack.enter_async_context(Queue(name, relay))
        await until(lambda: "takeSchedules" in relay.calls)
        await queue.is_paused()  # the reply to the call has come, so this process has become the second one
        first.kill()
        async with listening(queue) as events:
            for _ in range(5):
                await events.next()
            async with another_process(name, store.url) as third:
                await asyncio.sleep(0.3)
                third.kill()
            for _ in range(15):
                await events.next()
        await queue.remove_job_scheduler("s")
        found = await fire_times(queue)
    assert len(found) >= 20
    assert are_every(found, 200), found
