"""Many schedulers with the same fire time: all of them fire, however long that takes and whichever processes share
the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.client.scheduler_runner import LOGGED_UNREADABLE, SchedulerRunner
from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Arg, MemoryStorage, Storage
from tests.support.clocked_queue import MINUTE, Clock, store_of
from tests.support.helpers import AnyQueue
from tests.support.leak_check import verify
from tests.support.recording_storage import Relay
from tests.support.schedulers import base_of
from tests.support.stores import RunningStore

ROUND_TRIP = 0.004


async def make(queue: AnyQueue, count: int, fire_time: datetime) -> None:
    """Store schedulers whose first fire time is the same, s00000 first."""
    for at in range(0, count, 1000):
        ids = [f"s{n:05}" for n in range(at, min(at + 1000, count))]
        await asyncio.gather(*(queue.upsert_job_scheduler(each, every=86_400, start=fire_time) for each in ids))


class Late:
    """A queue whose schedulers are due in an hour by the server's clock, and processes that fire on request.

    The queue's own process sleeps during the test, because its clock does not move.
    """

    def __init__(self, queue: AnyQueue, relay: Relay, clock: Clock, store: RunningStore) -> None:
        self.queue, self.relay, self.clock, self.store = queue, relay, clock, store
        self.base = base_of(queue)

    def process(self, name: str) -> SchedulerRunner:
        return SchedulerRunner(Functions(self.relay, self.base), name)

    async def wait_for_fire_time(self, present: SchedulerRunner) -> None:
        """Let the hour pass. A process is present, according to its rounds."""
        await self.clock.advance(59 * MINUTE + 30_000)
        await present.fire()
        await self.clock.advance(30_000)

    async def counted(self) -> tuple[int, int]:
        """Return the numbers of fired and of skipped fire times."""
        found = await self.queue.get_job_schedulers()
        return sum(each.fired for each in found), sum(each.skipped for each in found)


@pytest.fixture
async def late(name: str) -> AsyncIterator[Late]:
    async with MemoryStorage(testing=True) as storage:
        relay = Relay(storage)
        async with Queue[Any, Any](name, relay) as queue:
            yield Late(queue, relay, Clock(storage, base_of(queue)), store_of(storage))
        await verify(storage, store_of(storage))


def in_an_hour() -> datetime:
    return datetime.now(tz=UTC) + timedelta(hours=1)


@pytest.mark.only_on("memory")
async def test_fire_times_are_not_missed_because_firing_takes_long(late: Late) -> None:
    """Between two pages the clock moves by almost the time that a process may need for one page."""
    await make(late.queue, 450, in_an_hour())
    pages = 0

    async def take_long(function: str, _args: Sequence[Arg], reply: Any) -> None:
        nonlocal pages
        if function == "takeSchedules" and reply[3]:
            pages += 1
            await late.clock.advance(80_000)

    process = late.process("slow")
    await late.wait_for_fire_time(process)
    late.relay.after_call = take_long
    await process.fire()
    assert pages == 5
    assert await late.counted() == (450, 0)


@pytest.mark.only_on("memory")
async def test_fire_times_without_a_process_are_missed(late: Late) -> None:
    await make(late.queue, 10, in_an_hour())
    process = late.process("one that leaves")
    await late.wait_for_fire_time(process)
    await late.clock.advance(95_000)
    await late.process("one that comes").fire()
    assert await late.counted() == (0, 10)


@pytest.mark.only_on("memory")
async def test_a_second_process_gets_another_part_of_a_long_list(late: Late) -> None:
    await make(late.queue, 450, in_an_hour())
    await late.wait_for_fire_time(late.process("first"))
    functions = Functions(late.relay, late.base)
    first, second = [await functions.schedulers.take(name, None, 200) for name in ("first", "second")]
    assert (first.is_first, second.holds_role, second.is_first) == (True, True, False)
    assert [due.id for due in first.due] == [f"s{n:05}" for n in range(100)]
    assert [due.id for due in second.due] == [f"s{n:05}" for n in range(200, 300)]


@pytest.mark.only_on("memory")
async def test_processes_that_fire_concurrently_fire_each_time_once(late: Late) -> None:
    await make(late.queue, 1_200, in_an_hour())
    processes = [late.process(name) for name in ("first", "second", "third")]
    await late.wait_for_fire_time(processes[0])
    await asyncio.gather(*(process.fire() for process in processes))
    assert await late.counted() == (1_200, 0)


@pytest.mark.only_on("memory")
async def test_unreadable_schedulers_are_requested_once(late: Late, caplog: pytest.LogCaptureFixture) -> None:
    await make(late.queue, 250, in_an_hour())
    for n in range(250):
        await late.store.ask("HSET", f"{late.base}:scheduler:s{n:05}", "spec", "rubbish")
    await late.queue.upsert_job_scheduler("t", every=60, start=in_an_hour() + timedelta(seconds=1))
    handed: list[int] = []

    async def count(function: str, _args: Sequence[Arg], reply: Any) -> None:
        if function == "takeSchedules":
            handed.append(len(reply[3]))

    late.relay.after_call = count
    process = late.process("first")
    await late.wait_for_fire_time(process)
    await late.clock.advance(2_000)
    handed.clear()
    await process.fire()
    assert sum(handed) == 251
    for _ in range(3):
        handed.clear()
        await late.clock.advance(60_000)
        await process.fire()
        assert handed == [1, 0], "the parts of the list must not repeat"
    found = await late.queue.get_job_scheduler("t")
    assert found is not None
    assert (found.fired, found.skipped) == (4, 0)
    assert 0 < sum("cannot be fired here" in line for line in caplog.messages) <= LOGGED_UNREADABLE
    await asyncio.gather(*(late.queue.remove_job_scheduler(f"s{n:05}") for n in range(250)))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.only_on("redis7")
@pytest.mark.parametrize("processes", [1, 2])
async def test_twenty_thousand_schedulers_with_one_fire_time_fire_over_a_slow_link(
    storage: Storage, name: str, processes: int
) -> None:
    async def travel(_function: str, _args: Sequence[Arg]) -> None:
        await asyncio.sleep(ROUND_TRIP)

    relay = Relay(storage)
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(Queue[Any, Any](name, relay)) for _ in range(processes)]
        fire_time = datetime.now(tz=UTC) + timedelta(seconds=45)
        await make(queues[0], 20_000, fire_time)
        assert datetime.now(tz=UTC) < fire_time, "the schedulers must be stored before their fire time"
        relay.before_call = travel
        await asyncio.sleep((fire_time - datetime.now(tz=UTC)).total_seconds())
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(120):
            while True:
                if (await queues[0].get_job_counts())["waiting"] == 20_000:
                    break
                await asyncio.sleep(0.05)
        print(f"{processes} processes: 20,000 fire times in {asyncio.get_running_loop().time() - began:.1f} s")
        relay.before_call = None
        found = await queues[0].get_job_schedulers()
    assert sum(each.fired for each in found) == 20_000
    assert sum(each.skipped for each in found) == 0
