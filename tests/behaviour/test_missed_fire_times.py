"""Fire times without a process, and changes of the local clock, on a server whose clock the test moves."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import JobScheduler, Queue, QueueEvent
from glidemq_async.storage import Endpoint, MemoryStorage, Storage
from tests.support.helpers import AnyQueue, history, listening
from tests.support.leak_check import verify
from tests.support.stores import RunningStore

NOON = datetime(2030, 5, 6, 12, 20, tzinfo=UTC)
HOURLY: dict[str, Any] = {"cron": "0 * * * *"}


class Clock:
    """The server's clock."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def set(self, instant: datetime) -> None:
        """Set the clock to this time."""
        shift = round((instant.timestamp() - time.time()) * 1000)
        await self._storage.call("testControl", "glide:{q}", ["clock_shift", shift])


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with MemoryStorage(testing=True) as opened:
        yield opened
        await verify(opened, RunningStore("memory", opened.url, (Endpoint(path=opened.socket),)))


@pytest.fixture
async def clock(storage: Storage) -> Clock:
    clock = Clock(storage)
    await clock.set(NOON)
    return clock


def a_queue(storage: Storage) -> AnyQueue:
    return Queue[Any, Any]("q", storage)


async def after_an_outage(
    storage: Storage, clock: Clock, until: datetime, **options: Any
) -> tuple[list[str], list[str], JobScheduler[Any]]:
    """Create a scheduler at noon and return at a later time: the ids of its jobs, the skipped fire times, and its
    state.
    """
    async with a_queue(storage) as queue:
        await queue.upsert_job_scheduler("s", **options)
    await clock.set(until)
    async with a_queue(storage) as queue, listening(queue, after="0") as events:
        while True:
            event = await events.next()
            found = await queue.get_job_scheduler("s")
            if found is not None and (found.next_at is None or found.next_at > until):
                break
            assert isinstance(event, QueueEvent)
        all_events = await history(queue)
        jobs = [event.job_id for event in all_events if event.kind == "added"]
        skipped = [event.detail for event in all_events if event.kind == "skipped"]
    return jobs, skipped, found


def fire_time(*, hour: int, minute: int = 0, second: int = 0) -> str:
    at = NOON.replace(hour=hour, minute=minute, second=second)
    return f"s@{round(at.timestamp() * 1000)}"


async def test_skip_ignores_missed_fire_times(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    jobs, skipped, found = await after_an_outage(storage, clock, until, **HOURLY)
    assert (jobs, skipped) == ([], ["5 missed"])
    assert (found.fired, found.skipped) == (0, 5)
    assert found.next_at == NOON.replace(hour=18, minute=0)


async def test_skip_fires_the_latest_time_if_it_has_only_just_passed(storage: Storage, clock: Clock) -> None:
    until = NOON.replace(hour=15, minute=1)
    jobs, skipped, found = await after_an_outage(storage, clock, until, **HOURLY)
    assert (jobs, skipped) == ([fire_time(hour=15)], ["2 missed"])
    assert (found.fired, found.skipped) == (1, 2)


async def test_fire_once_adds_one_job_for_all_missed_fire_times(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    jobs, skipped, found = await after_an_outage(storage, clock, until, **HOURLY, missed="fire-once")
    assert (jobs, skipped) == ([fire_time(hour=17)], ["4 missed"])
    assert (found.fired, found.skipped) == (1, 4)
    assert found.last_at == NOON.replace(hour=17, minute=0)


async def test_fire_all_adds_a_job_for_every_missed_fire_time(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    jobs, skipped, found = await after_an_outage(storage, clock, until, **HOURLY, missed="fire-all")
    assert (jobs, skipped) == ([fire_time(hour=hour) for hour in range(13, 18)], [])
    assert (found.fired, found.skipped) == (5, 0)


async def test_fire_all_has_a_cap(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    jobs, skipped, found = await after_an_outage(storage, clock, until, **HOURLY, missed="fire-all", catch_up=2)
    assert (jobs, skipped) == ([fire_time(hour=16), fire_time(hour=17)], ["3 missed"])
    assert (found.fired, found.skipped) == (2, 3)


async def test_fire_all_continues_over_several_calls(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(minutes=400, seconds=30)
    jobs, _, found = await after_an_outage(storage, clock, until, every=60, missed="fire-all", catch_up=230)
    assert len(set(jobs)) == len(jobs) == found.fired == 230
    assert found.skipped == 170


async def test_fire_all_keeps_to_the_limit(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    jobs, _, found = await after_an_outage(storage, clock, until, **HOURLY, missed="fire-all", limit=3)
    assert len(jobs) == found.fired == 3
    assert found.next_at is None


async def test_fire_all_without_overlap_fires_once(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    jobs, skipped, found = await after_an_outage(storage, clock, until, **HOURLY, missed="fire-all", overlap="skip")
    assert jobs == [fire_time(hour=13)]
    assert [detail.split()[1] for detail in skipped] == ["overlap"] * 4
    assert (found.fired, found.skipped) == (1, 4)


async def test_a_schedule_that_ended_during_the_outage_ends(storage: Storage, clock: Clock) -> None:
    until = NOON + timedelta(hours=5)
    end = NOON + timedelta(hours=2)
    jobs, _, found = await after_an_outage(storage, clock, until, **HOURLY, missed="fire-all", end=end)
    assert jobs == [fire_time(hour=13), fire_time(hour=14)]
    assert found.next_at is None


async def test_an_interval_keeps_its_fire_times_through_an_outage(storage: Storage, clock: Clock) -> None:
    async with a_queue(storage) as queue:
        made = await queue.upsert_job_scheduler("s", every=7)
    assert made.next_at is not None
    await clock.set(NOON + timedelta(hours=1))
    async with a_queue(storage) as queue:
        again = await queue.upsert_job_scheduler("s", every=7)
        assert again.next_at == made.next_at
        async with listening(queue) as events:
            event = await events.next()
        found = await queue.get_job_scheduler("s")
    assert event.kind in ("added", "skipped")
    assert found is not None
    assert found.next_at is not None
    assert (found.next_at - made.next_at) % timedelta(seconds=7) == timedelta(0)


async def first_fire_times(storage: Storage, clock: Clock, start: str, count: int, cron: str) -> list[str]:
    """Return the fire times from a time on, with the clock set to just before each of them, in Madrid's winter time."""
    await clock.set(datetime.fromisoformat(start))
    found: list[str] = []
    for _ in range(count):
        async with a_queue(storage) as queue:
            made = await queue.upsert_job_scheduler("s", cron=cron, tz="Europe/Madrid")
            assert made.next_at is not None
            async with listening(queue) as events:
                await clock.set(made.next_at - timedelta(seconds=0.3))
                # Another process comes and finds the present clock.
                async with a_queue(storage):
                    event = await events.next()
        assert event.kind == "added"
        at = datetime.fromtimestamp(int(event.job_id.removeprefix("s@")) / 1000, UTC)
        found.append(at.strftime("%d %H:%MZ"))
    return found


async def test_a_fire_time_in_the_gap_of_spring_fires_after_it(storage: Storage, clock: Clock) -> None:
    found = await first_fire_times(storage, clock, "2031-03-29T12:00Z", 2, "30 2 * * *")
    assert found == ["30 01:00Z", "31 00:30Z"]


async def test_a_fire_time_in_the_repeated_hour_of_autumn_fires_once(storage: Storage, clock: Clock) -> None:
    found = await first_fire_times(storage, clock, "2030-10-26T12:00Z", 2, "30 2 * * *")
    assert found == ["27 00:30Z", "28 01:30Z"]


async def test_a_schedule_by_minutes_passes_both_changes(storage: Storage, clock: Clock) -> None:
    found = await first_fire_times(storage, clock, "2030-10-27T00:10Z", 4, "*/30 * * * *")
    assert found == ["27 00:30Z", "27 01:00Z", "27 01:30Z", "27 02:00Z"]


async def test_schedulers_fire_after_the_clock_was_set_back(storage: Storage, clock: Clock) -> None:
    async with a_queue(storage) as queue:
        await queue.upsert_job_scheduler("s", every=0.2)
        async with listening(queue) as events:
            await events.next()
    await clock.set(NOON - timedelta(days=3))
    async with a_queue(storage) as queue:
        await queue.upsert_job_scheduler("t", every=0.2)
        async with listening(queue) as events:
            assert (await events.next()).job_id.startswith("t@")
