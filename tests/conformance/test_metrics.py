"""Metrics: the number of jobs that ended in each minute, and their run times."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import MetricPoint, Metrics, RetryLater
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, ended, worker_of
from tests.support.stores import RunningStore


async def work(job: AnyJob) -> Any:
    await asyncio.sleep(0.05)
    if job.data % 2:
        raise ValueError("odd")
    return job.data


@pytest.mark.everywhere
async def test_ended_jobs_count_in_their_minute(queue: AnyQueue) -> None:
    before = datetime.now(UTC)
    async with worker_of(queue, work, concurrency=5):
        for job in await queue.add_bulk([("n", number) for number in range(5)]):
            await ended(job)
    for state, number in (("completed", 3), ("failed", 2)):
        metrics = await queue.get_metrics(state)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert metrics.count == sum(point.count for point in metrics.points) == number
        # A full minute may have passed between the ends of the runs.
        assert 1 <= len(metrics.points) <= 2
        total = sum(point.count * point.mean_seconds for point in metrics.points)
        # Seconds, to which a pausing host may add some. A mean in milliseconds would be above 50.
        assert 0.04 * number < total < 20 * number
        for point in metrics.points:
            assert point.minute.tzinfo is UTC
            assert (point.minute.second, point.minute.microsecond) == (0, 0)
            assert before - timedelta(minutes=2) < point.minute < datetime.now(UTC) + timedelta(minutes=1)


async def test_a_queue_without_ended_jobs_has_empty_metrics(queue: AnyQueue) -> None:
    await queue.add("n")
    assert await queue.get_metrics("completed") == Metrics(0, ())


async def test_only_final_outcomes_count(queue: AnyQueue) -> None:
    async def once(job: AnyJob) -> None:
        if job.fence == 1:
            raise RetryLater(0)
        if job.fence == 2:
            raise ValueError("again")

    async with worker_of(queue, once):
        await (await queue.add("n", attempts=3)).result(10)
    assert [(await queue.get_metrics(state)).count for state in ("completed", "failed")] == [1, 0]


async def test_failures_by_the_server_count_without_a_duration(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker = FakeWorker(queue, store)
    await queue.add_bulk([("n", number) for number in range(2)])
    held = await fake_worker.claim(2)
    await fake_worker.vanish(*held)
    await fake_worker.sweep(max_stalled=0)
    await fake_worker.leave()
    metrics = await queue.get_metrics("failed")
    assert metrics.count == 2
    assert {point.mean_seconds for point in metrics.points} == {0.0}


async def test_revoked_jobs_are_no_failures(queue: AnyQueue) -> None:
    waiting = await queue.add("n")
    await waiting.revoke()
    started = asyncio.Event()

    async def revoke_one(job: AnyJob) -> None:
        if job.data == "fail":
            raise ValueError("failed by itself")
        started.set()
        await asyncio.Event().wait()

    async with worker_of(queue, revoke_one):
        running = await queue.add("n")
        await started.wait()
        await running.revoke()
        await ended(running)
        await ended(await queue.add("n", "fail"))
    assert (await queue.get_job_counts())["failed"] == 3
    metrics = await queue.get_metrics("failed")
    assert metrics.count == 1
    assert (await queue.get_metrics("completed")).count == 0


async def put(store: RunningStore, queue: AnyQueue, minute: int, count: int, run_ms: int) -> None:
    key = f"glide:{{{queue.name}}}:metrics:completed:{minute // 60}"
    await store.ask("HSET", key, f"{minute % 60}:n", count, f"{minute % 60}:ms", run_ms)
    await store.ask("PEXPIRE", key, 60_000)


async def test_points_are_in_order_and_within_the_bounds(queue: AnyQueue, store: RunningStore) -> None:
    now = int(datetime.now(UTC).timestamp()) // 60
    minutes = [now - 1_500, now - 1_430, now - 61, now - 60, now - 59, now - 1]
    for number, minute in enumerate(minutes):
        await put(store, queue, minute, number + 1, 500 * (number + 1))

    def points(*chosen: int) -> tuple[MetricPoint, ...]:
        return tuple(MetricPoint(instant(minutes[number]), number + 1, 0.5) for number in chosen)

    everything = await queue.get_metrics("completed")
    assert everything == Metrics(2 + 3 + 4 + 5 + 6, points(1, 2, 3, 4, 5)), "the last 24 hours"
    assert (await queue.get_metrics("completed", start=instant(now - 60))).points == points(3, 4, 5)
    assert (await queue.get_metrics("completed", end=instant(now - 60))).points == points(1, 2, 3)
    late = instant(now - 60) + timedelta(seconds=59)
    assert (await queue.get_metrics("completed", start=late, end=late)).points == points(3)
    assert (await queue.get_metrics("failed")).count == 0


def instant(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


async def test_metrics_are_collected_without_a_call(queue: AnyQueue, store: RunningStore) -> None:
    async with worker_of(queue, work):
        await (await queue.add("n", 0)).result(10)
    (key,) = [key for key in await store.keys() if ":metrics:" in key]
    lifetime = (await store.lifetimes([key]))[key]
    assert 24 * 3_600_000 < lifetime <= 25 * 3_600_000


async def test_bad_arguments_are_refused(queue: AnyQueue) -> None:
    with pytest.raises(ValueError, match="state must be completed or failed, got 'waiting'"):
        await queue.get_metrics("waiting")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="time zone"):
        await queue.get_metrics("failed", start=datetime(2026, 1, 1))  # noqa: DTZ001 - this is the refused value
    with pytest.raises(ValueError, match="start must not be after end"):
        await queue.get_metrics("failed", start=instant(2), end=instant(1))
