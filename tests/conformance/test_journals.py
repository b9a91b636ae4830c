"""The journals of jobs: they are removed with their jobs, and kept as long as another run may need them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from glidemq_async import JobFailed, JobOptions, UnrecoverableError
from tests.conformance.test_steps import Effects, journals
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, soon, worker_of
from tests.support.stores import RunningStore


@pytest.mark.everywhere
@pytest.mark.parametrize("how", ["remove", "clean", "obliterate"])
@pytest.mark.parametrize("fails", [False, True])
async def test_the_journal_is_removed_with_its_job(queue: AnyQueue, store: RunningStore, how: str, fails: bool) -> None:
    async def handler(job: AnyJob) -> None:
        await job.step("s", Effects(), 1)
        if fails:
            raise UnrecoverableError

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await ended(job)
    assert await journals(queue, store)
    removals: dict[str, Callable[[], Awaitable[object]]] = {
        "remove": job.remove,
        "clean": lambda: queue.clean(0, 10, "failed" if fails else "completed"),
        "obliterate": queue.obliterate,
    }
    await removals[how]()
    assert not [key for key in await store.keys() if ":step" in key]


async def ended(job: AnyJob) -> None:
    with suppress(JobFailed):
        await job.result(10)


async def test_a_running_job_is_removed_with_its_journal(queue: AnyQueue, store: RunningStore) -> None:
    gate = Gate()

    async def handler(job: AnyJob) -> None:
        await job.step("s", Effects(), 1)
        await gate(job)

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await gate.running()
        await job.remove()
        assert not await journals(queue, store)


async def test_a_suspended_job_continues_from_its_journal(queue: AnyQueue) -> None:
    effect = Effects()

    async def handler(job: AnyJob) -> Any:
        found = await job.step("s", effect, 1)
        if job.fence == 1:
            await job.suspend(timeout=0.01)
        return found

    job = await queue.add("n")
    async with worker_of(queue, handler):
        assert await job.result(10) == ["done", 1]
    assert effect.calls == [1]
    assert not await queue.check()


async def test_a_delayed_job_with_a_journal_is_drained(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n")
    worker = FakeWorker(queue, store)
    [lease] = await worker.claim()
    await worker.record_step(lease, "a", b"1")
    await worker.settle(lease, "d", "60000")
    assert await job.get_state() == "delayed"
    await queue.drain(delayed=True)
    assert not await journals(queue, store)


async def test_retention_removes_journals(queue: AnyQueue, store: RunningStore) -> None:
    async def handler(job: AnyJob) -> None:
        await job.step("s", Effects(), 1)

    await queue.add_bulk(("n", number, JobOptions(keep_completed=2)) for number in range(5))
    async with worker_of(queue, handler) as worker:
        await soon(worker.until_empty())
    assert len([key for key in await journals(queue, store) if ":steps:" in key]) == 2
    last = await queue.add("n", keep_completed=False)
    async with worker_of(queue, handler) as worker:
        await soon(worker.until_empty())
    assert await queue.get_job(last.id) is None
    assert len([key for key in await journals(queue, store) if ":steps:" in key]) == 2


async def test_records_that_waiters_released_are_removed_with_their_journals(
    queue: AnyQueue, store: RunningStore
) -> None:
    """The call that confirms a reply removes records too, and it does not read all flags of the queue."""

    async def handler(job: AnyJob) -> None:
        await job.step("s", Effects(), 1)

    async with worker_of(queue, handler):
        # Each call waits from the start. A later wait could find that retention has already removed the job.
        await asyncio.gather(*(queue.add_and_wait("n", keep_completed=1, wait_timeout=PATIENCE) for _ in range(5)))
        await soon(_until_one_is_left(queue))
    assert len([key for key in await journals(queue, store) if ":steps:" in key]) == 1


async def _until_one_is_left(queue: AnyQueue) -> None:
    while (await queue.get_job_counts()).get("completed") != 1:  # noqa: ASYNC110 - the last confirmation
        await asyncio.sleep(0.01)


async def test_the_journal_of_a_completed_job_is_its_history(queue: AnyQueue, store: RunningStore) -> None:
    async def handler(job: AnyJob) -> None:
        await job.step("s", lambda: "x" * job.data)

    small, large = await queue.add("n", 10), await queue.add("n", 600_000)
    async with worker_of(queue, handler):
        await small.result(10)
        await large.result(10)
    assert [step.result for step in await small.get_steps()] == ["x" * 10]
    assert len(await large.get_steps()) == 1
    ttl = await store.ask("PTTL", f"glide:{{{queue.name}}}:steps:{small.id}")
    assert isinstance(ttl, int)
    assert 86_000_000 < ttl <= 86_400_000
    await store.ask("DEL", f"glide:{{{queue.name}}}:steps:{small.id}")
    assert await small.get_steps() == []
    assert not await queue.check()
    await small.remove()
    assert len(await journals(queue, store)) == 2


async def test_a_large_journal_of_a_completed_job_is_kept_for_a_minute(queue: AnyQueue, store: RunningStore) -> None:
    async def handler(job: AnyJob) -> None:
        for number in range(2):
            await job.step("s", lambda: "x" * 600_000, key=str(number))

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await job.result(10)
    ttl = await store.ask("PTTL", f"glide:{{{queue.name}}}:steps:{job.id}")
    assert isinstance(ttl, int)
    assert 50_000 < ttl <= 60_000
    assert not await queue.check()


@pytest.mark.everywhere
async def test_a_retried_job_continues_from_its_journal(queue: AnyQueue, store: RunningStore) -> None:
    effect = Effects()

    async def handler(job: AnyJob) -> Any:
        found = await job.step("s", effect, 1)
        if job.fence == 1:
            raise UnrecoverableError("once")
        return found

    job = await queue.add("n")
    async with worker_of(queue, handler):
        with pytest.raises(JobFailed):
            await job.result(10)
        await job.retry()
        assert await job.result(10) == ["done", 1]
        assert effect.calls == [1]
        # A completed job starts anew.
        await job.retry()
        assert await job.result(10) == ["done", 1]
    assert effect.calls == [1, 1]
    assert not await queue.check()


async def test_a_new_job_with_a_used_id_has_its_own_journal(queue: AnyQueue) -> None:
    effect = Effects()

    async def handler(job: AnyJob) -> None:
        await job.step("s", effect, 1)

    async with worker_of(queue, handler):
        for _ in range(2):
            job = await queue.add("n", job_id="a")
            await job.result(10)
            await job.remove()
    assert effect.calls == [1, 1]
