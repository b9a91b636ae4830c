"""Sweeps keep their pace next to handlers that block the loop, with a single worker, and after short leases."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from glidemq_async import JobFailed
from glidemq_async._internal import failpoints
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, soon, until, worker_of
from tests.support.stores import RunningStore


async def test_blocking_handlers_do_not_prevent_the_recovery_of_a_lost_job(
    queue: AnyQueue, store: RunningStore
) -> None:
    recovered = threading.Event()

    async def block(job: AnyJob) -> None:
        if job.data == "victim":
            recovered.set()
        elif not recovered.is_set():
            time.sleep(0.7)  # noqa: ASYNC251 - the test needs a blocked loop

    victim = await queue.add("n", "victim")
    killed = FakeWorker(queue, store)
    assert [lease.id for lease in await killed.claim(1, lock_ms=1000)] == [victim.id]
    await queue.add_bulk([("n", "block")] * 15)
    began = time.monotonic()
    async with worker_of(queue, block, lock_duration=1):
        await victim.result(10)
        assert time.monotonic() - began < 6
    await victim.refresh()
    assert (victim.state, victim.stalled_count) == ("completed", 1)
    await killed.leave()


async def test_a_single_worker_sweeps_about_every_second(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        for _ in range(3):
            job = await queue.add("n", delay=60, ttl=0.1)
            # By its lease alone it would sweep less often than this test waits.
            with pytest.raises(JobFailed, match="expired"):
                await job.result(10)


@pytest.fixture
def renewals() -> Iterator[list[float]]:
    """Return the times of renewals."""
    found: list[float] = []
    failpoints.arm("renew.before_send", lambda: found.append(time.monotonic()))
    yield found
    failpoints.disarm()


async def test_a_short_lease_is_renewed_often_only_while_its_job_runs(queue: AnyQueue, renewals: list[float]) -> None:
    gate = Gate()
    async with worker_of(queue, gate, lock_duration=30):
        job = await queue.add("n", 1, lock_duration=1)
        await gate.running()
        renewals.clear()
        # The worker's own lease needs one renewal in ten seconds.
        await until(lambda: len(renewals) >= 3)
        gate.release()
        assert await soon(job.result(5)) == 1
        await asyncio.sleep(0.5)  # planned while the job ran
        renewals.clear()
        await asyncio.sleep(1.2)
        assert len(renewals) <= 1
