"""Testing an app of tasks: on a server of the test, drained by the test, or run at each add."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from glidemq_async import Backoff, GlideMQ, JobFailed
from glidemq_async.tasks.app import core_of
from glidemq_async.testing import Harness

HOUR = 3600
mq = GlideMQ("redis://127.0.0.1:1/0", queue="sums")
seen: list[object] = []


@mq.task
async def add(one: int, other: int) -> int:
    return one + other


@mq.task(queue="chains")
async def twice(one: int) -> int:
    job = await add.add(one, one)
    seen.append(job.id)
    return one * 2


@mq.task(attempts=2, backoff=Backoff.fixed(HOUR))
def fail() -> None:
    raise ValueError("no luck")


@mq.cron("0 3 * * *", queue="nights")
async def nightly() -> str:
    return "done"


async def test_an_app_is_moved_to_the_server_of_the_test_and_drained(glidemq: Harness) -> None:
    glidemq.use(mq)
    job = await twice.add(3)
    ended = await glidemq.drain(mq)
    assert [(one.name, one.return_value) for one in ended] == [("twice", 6), ("add", 6)]
    assert await job.result(timeout=5) == 6
    await glidemq.assert_added("sums", "add", data={"a": [3, 3]})
    assert await glidemq.drain(mq) == []


async def test_jobs_of_an_app_that_has_not_run_are_found_by_argument(glidemq: Harness) -> None:
    glidemq.use(mq)
    await add.add(1, 2)
    await glidemq.assert_added("sums", "add", data={"one": 1, "other": 2})
    with pytest.raises(AssertionError, match=r"add \{'one': 1, 'other': 2\}"):
        await glidemq.assert_added("sums", "add", data={"one": 3})


async def test_an_app_returns_to_its_own_server_when_the_harness_closes() -> None:
    async with Harness() as harness:
        assert harness.use(mq) is mq
        await add.add(1, 2)
        with pytest.raises(RuntimeError, match="the app is open"):
            core_of(mq).relocate("memory://")
    assert core_of(mq).relocate("memory://") == "redis://127.0.0.1:1/0"
    core_of(mq).relocate("redis://127.0.0.1:1/0")


async def test_eager_runs_each_job_at_its_add(glidemq: Harness) -> None:
    with glidemq.eager(mq):
        job = await add.add(1, 2)
        assert (job.state, job.return_value) == ("completed", 3)
        assert await (await twice.add(5)).result(timeout=5) == 10
        later = await add.options(delay=HOUR).add(1, 1)
        assert later.state == "delayed"
        failed = await fail.options(attempts=1).add()
        assert failed.state == "failed"
        with pytest.raises(JobFailed, match="no luck"):
            await failed.result(timeout=5)
    waiting = await add.add(4, 4)
    assert await waiting.get_state() == "waiting"


async def test_eager_returns_the_ended_job_even_without_retention(glidemq: Harness) -> None:
    with glidemq.eager(mq):
        done = await add.options(keep_completed=False).add(1, 2)
        failed = await fail.options(keep_failed=False, attempts=1).add()
    assert (done.state, done.return_value) == ("completed", 3)
    assert (failed.state, failed.failed_reason) == ("failed", "ValueError: no luck")


async def test_retries_of_a_task_take_no_time(glidemq: Harness) -> None:
    glidemq.use(mq)
    await glidemq.clock.move_to(datetime(2030, 1, 1, 12, tzinfo=UTC))  # no other job becomes due in that hour
    job = await fail.add()
    assert await glidemq.drain(mq) == []
    await glidemq.clock.advance(HOUR)
    assert [one.id for one in await glidemq.drain(mq)] == [job.id]


async def test_a_cron_fires_when_the_clock_reaches_its_time(glidemq: Harness) -> None:
    glidemq.use(mq)
    await glidemq.clock.move_to(datetime(2030, 1, 1, 12, tzinfo=UTC))
    async with mq:
        await glidemq.clock.advance(timedelta(days=3))
        assert [job.return_value for job in await glidemq.drain(mq)] == ["done"] * 3


async def test_a_queue_needs_a_processor(glidemq: Harness) -> None:
    with pytest.raises(TypeError, match="needs a processor"):
        await glidemq.drain("q")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
