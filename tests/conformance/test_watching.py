"""Watchers of a job get its state, progress and log lines, until its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from glidemq_async import JobNotFound, JobUpdate, Queue, QueueClosed
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, soon, until, worker_of
from tests.support.stores import RunningStore


async def updates(job: AnyJob) -> list[JobUpdate]:
    return await soon(_updates(job))


async def _updates(job: AnyJob) -> list[JobUpdate]:
    return [update async for update in job.watch()]


async def reached(watcher: AsyncIterator[JobUpdate], **expected: Any) -> JobUpdate:
    """Return the first update with these values. Each must be announced, so it comes before a recheck."""
    async with asyncio.timeout(4):
        async for update in watcher:
            if all(getattr(update, name) == value for name, value in expected.items()):
                return update
    raise AssertionError(f"the watch ended before {expected}")


@pytest.mark.everywhere
async def test_a_watcher_sees_each_change_without_a_poll(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", attempts=2, backoff=60)
    worker, watcher = FakeWorker(queue, store), job.watch()
    assert await anext(watcher) == JobUpdate("waiting", None)
    [lease] = await worker.claim()
    await reached(watcher, state="active")
    await worker.update(lease, "progress", b"\x05")
    await reached(watcher, progress=5)
    await worker.update(lease, "log", "one")
    assert (await reached(watcher, log=("one",))).progress == 5
    await worker.settle(lease, "r", "60000 again")
    await reached(watcher, state="delayed")
    await job.promote()
    await reached(watcher, state="waiting")
    [lease] = await worker.claim()
    await worker.settle(lease)
    await reached(watcher, state="completed")
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)


async def test_a_late_watcher_gets_the_end(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.log("a")
        await job.update_progress({"done": 1})
        await job.log("b")

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await job.result(10)
    assert await updates(job) == [JobUpdate("completed", {"done": 1}, ("a", "b"))]
    plain = await queue.add("n")
    async with worker_of(queue, echo):
        await plain.result(10)
    assert await updates(plain) == [JobUpdate("completed", None)]


async def test_a_watcher_of_a_job_that_is_not_kept_gets_its_end(queue: AnyQueue) -> None:
    gate = Gate()
    job = await queue.add("n", keep_completed=False)
    watcher = job.watch()
    assert (await anext(watcher)).state == "waiting"
    async with worker_of(queue, gate):
        await reached(watcher, state="active")
        gate.release()
        await reached(watcher, state="completed")
    assert await queue.get_job(job.id) is None


async def test_a_failed_job_ends_the_watch(queue: AnyQueue) -> None:
    job = await queue.add("n")
    watcher = job.watch()
    await anext(watcher)
    await job.revoke()
    await reached(watcher, state="failed")
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)


async def test_a_removed_job_ends_the_watch_with_an_error(queue: AnyQueue) -> None:
    job = await queue.add("n")
    watcher = job.watch()
    await anext(watcher)
    await job.remove()
    with pytest.raises(JobNotFound, match="cannot watch"):
        await soon(anext(watcher))
    with pytest.raises(JobNotFound):
        await anext(job.watch())


async def test_no_log_line_is_left_out(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=60)
    watcher = job.watch()
    await anext(watcher)
    for number in range(700):
        await job.log(f"line {number}")
    await job.promote()
    async with worker_of(queue, echo):
        shown = [line async for update in watcher for line in update.log]
    assert shown == [f"line {number}" for number in range(700)]


async def test_trimmed_log_lines_are_counted(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=60)
    for number in range(1_100):
        await job.log(str(number))
    watcher = job.watch()
    first = await anext(watcher)
    assert first.missed_lines == 100
    shown = [*first.log]
    while len(shown) < 1_000:
        update = await soon(anext(watcher))
        assert not update.missed_lines
        shown += update.log
    assert shown == [str(number) for number in range(100, 1_100)]
    await job.log("one more")
    assert (await soon(anext(watcher))).log == ("one more",)


async def test_watchers_share_their_reads(storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    async with Queue[Any, Any](name, storage) as queue:
        job = await queue.add("n")
        watching = queue._client.functions.watching  # pyright: ignore[reportPrivateUsage]
        read = watching.read

        async def counted(wanted: Any) -> Any:
            nonlocal calls
            calls += 1
            return await read(wanted)

        monkeypatch.setattr(queue._client.tail._updates, "_call", counted)  # pyright: ignore[reportPrivateUsage]
        watchers = [asyncio.create_task(updates(job)) for _ in range(300)]
        await asyncio.sleep(0)
        async with worker_of(queue, echo):
            seen = await asyncio.gather(*watchers)
    assert {one[-1].state for one in seen} == {"completed"}
    assert calls < 30


async def test_closing_the_queue_ends_a_watch(storage: Storage, name: str) -> None:
    queue = Queue[Any, Any](name, storage)
    job = await queue.add("n")
    watcher = job.watch()
    await anext(watcher)
    watching = asyncio.create_task(_rest(watcher))
    reading = asyncio.create_task(_rest(job.chunks()))
    await until(lambda: _both_wait(queue, job.id))
    await queue.close()
    for task in (watching, reading):
        with pytest.raises(QueueClosed):
            await soon(task)


def _both_wait(queue: Any, job_id: str) -> bool:
    """Return whether a reader and a watcher of a job wait for its next change."""
    feed = queue._client.tail._feeds[job_id]
    return all(changes._event._waiters for changes in (feed.chunks, feed.updates))


async def _rest(items: AsyncIterator[object]) -> list[object]:
    return [item async for item in items]


async def test_a_job_is_watched_without_an_event_loop(queue: AnyQueue) -> None:
    job = await queue.add("n")
    async with worker_of(queue, echo):
        seen = await asyncio.to_thread(lambda: list(job.sync.watch()))
    assert seen[-1] == JobUpdate("completed", None)
