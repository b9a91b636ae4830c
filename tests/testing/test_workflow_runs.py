"""A test runs workflows to their end: the clock jumps through their waits, and signals are sent to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import GlideMQ, Workflow, workflows
from glidemq_async.testing import Harness


@dataclass
class Approved:
    by: str


@pytest.fixture
def mq() -> GlideMQ[Any]:
    mq: GlideMQ[Any] = GlideMQ("memory://", queue="orders")
    mq.signal(Approved)
    return mq


def order_of(mq: GlideMQ[Any]) -> Workflow[[], list[str]]:
    @mq.workflow
    async def order() -> list[str]:
        times = [await workflows.now()]
        await workflows.sleep("1d")
        times.append(await workflows.now(key="second"))
        try:
            answer = (await workflows.receive(Approved, timeout="3d")).by
        except TimeoutError:
            answer = "nobody"
        await workflows.sleep("30d")
        times.append(await workflows.now(key="third"))
        return [answer, *(str(round((late - times[0]) / timedelta(days=1))) for late in times[1:])]

    return order


async def test_the_clock_jumps_through_the_waits_of_a_run(glidemq: Harness, mq: GlideMQ[Any]) -> None:
    glidemq.use(mq)
    async with mq:
        run = await order_of(mq).start()
    began = datetime.now(UTC)
    job = await glidemq.finish(mq, run)
    assert job.return_value == ["nobody", "1", "34"]
    assert await glidemq.clock.now() - began >= timedelta(days=34)


async def test_a_signal_is_sent_to_a_run(glidemq: Harness, mq: GlideMQ[Any]) -> None:
    glidemq.use(mq)
    async with mq:
        run = await order_of(mq).start()
    await glidemq.send(run, Approved("ada"))
    job = await glidemq.finish(mq, run)
    assert job.return_value == ["ada", "1", "31"]


async def test_retries_and_called_tasks_are_jumped_through_too(glidemq: Harness, mq: GlideMQ[Any]) -> None:
    attempts: list[int] = []

    @mq.task(attempts=3, backoff=3_600)
    async def fail_twice() -> int:
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError("not yet")
        return 5

    @mq.workflow
    async def order() -> int:
        await workflows.sleep("2h")
        return await fail_twice.call()

    glidemq.use(mq)
    async with mq:
        run = await order.start()
    began = await glidemq.clock.now()
    assert (await glidemq.finish(mq, run)).return_value == 5
    assert len(attempts) == 3
    assert timedelta(hours=4) <= await glidemq.clock.now() - began < timedelta(hours=5)
    async with mq:
        job = await fail_twice.options(delay=60).add()
    assert (await glidemq.finish(mq, job)).state == "completed"


async def test_a_run_that_the_clock_cannot_end_fails_the_test(glidemq: Harness, mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> str:
        return (await workflows.receive(Approved)).by

    glidemq.use(mq)
    async with mq:
        run = await order.start()
    with pytest.raises(AssertionError, match=r"job 1 does not end, because it waits for Approved; send it a signal"):
        await glidemq.finish(mq, run)
    await glidemq.send(run, Approved("ada"))
    assert (await glidemq.finish(mq, run)).return_value == "ada"


async def test_a_run_replies_to_a_signal(glidemq: Harness, mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> str:
        await workflows.sleep("2h")
        approved = await workflows.receive(Approved)
        await workflows.reply(approved, f"thanks, {approved.by}")
        return "done"

    glidemq.use(mq)
    async with mq:
        run = await order.start()
    with pytest.raises(AssertionError, match="has not replied, because it is suspended"):
        await glidemq.send_and_wait(mq, run, Approved("eve"))
    await glidemq.clock.advance(7_200)
    assert (await glidemq.finish(mq, run)).return_value == "done"
    async with mq:
        run = await order.start()
    await glidemq.drain(mq)
    await glidemq.clock.advance(7_200)
    assert await glidemq.send_and_wait(mq, run, Approved("ada")) == "thanks, ada"


def test_a_plain_test_finishes_a_run(mq: GlideMQ[Any]) -> None:
    order = order_of(mq)
    with Harness() as harness:
        harness.use(mq)
        job = order.task.sync.add()
        harness.sync.send(job, Approved("ada"))
        assert harness.sync.finish(mq, job).return_value == ["ada", "1", "31"]
