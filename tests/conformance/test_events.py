"""QueueEvents: every event once and in order, a position to resume from, and the number of missed events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

import pytest

from glidemq_async import Queue, QueueClosed, QueueEvent, QueueEvents, RetryLater
from glidemq_async.payloads.codecs import Signing
from glidemq_async.queues.events import BLOCK_SECONDS
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, ended, history, listening, soon, until, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waits_for_events


@pytest.mark.everywhere
async def test_the_events_of_a_job_follow_its_life(queue: AnyQueue) -> None:
    async def work(job: AnyJob) -> None:
        if not job.attempts_made:
            raise ValueError("first")
        await job.update_progress(1)

    async with worker_of(queue, work), listening(queue) as events:
        job = await queue.add("n", attempts=2, backoff=0.05)
        seen = [await events.next() for _ in range(7)]
    assert all(event.job_id == job.id for event in seen)
    assert [(event.kind, event.detail) for event in seen] == [
        ("added", "n"), ("active", ""), ("retrying", "50 ValueError: first"), ("waiting", ""), ("active", ""),
        ("progress", ""), ("completed", ""),
    ]  # fmt: skip
    assert all(abs(event.at - datetime.now(UTC)) < timedelta(seconds=30) for event in seen)


async def test_the_event_of_a_progress_has_its_value(queue: AnyQueue) -> None:
    values: list[Any] = [0.5, {"pages": [1, 2]}, "x" * 2_000, None]

    async def work(job: AnyJob) -> None:
        for value in values:
            await job.update_progress(value)

    async with worker_of(queue, work):
        job = await queue.add("import", key="tenant")
        await ended(job)
    seen = [event for event in await history(queue) if event.job_id == job.id]
    assert [(event.name, event.key) for event in seen if event.kind == "added"] == [("import", "tenant")]
    progress = [event for event in seen if event.kind == "progress"]
    assert [event.value for event in progress] == [0.5, {"pages": [1, 2]}, None, None]
    assert {(event.name, event.key) for event in progress} == {("import", "tenant")}
    assert len({*seen}) == len(seen)


async def test_a_reader_without_the_codecs_gets_no_value(storage: Storage, name: str) -> None:
    codecs = [Signing({"a": b"k" * 32})]
    async with Queue[Any, Any](name, storage, codecs=codecs) as queue:
        job = await queue.add("n")
        await job.update_progress(7)
        for given, value in ((codecs, 7), ((), None)):
            async with QueueEvents(name, storage, after="0", codecs=given) as events:
                found = [event async for event in _until(events, "progress")]
            assert [event.value for event in found if event.kind == "progress"] == [value]


async def _until(events: QueueEvents, kind: str) -> AsyncIterator[QueueEvent]:
    async for event in events:
        assert isinstance(event, QueueEvent)
        yield event
        if event.kind == kind:
            return


async def test_a_reader_gets_only_new_events_by_default(queue: AnyQueue) -> None:
    await queue.add("before")
    async with listening(queue) as events:
        job = await queue.add("after")
        first = await events.next()
    assert (first.kind, first.job_id) == ("added", job.id)


async def test_a_reader_can_begin_at_the_first_event(queue: AnyQueue) -> None:
    jobs = [await queue.add("n") for _ in range(3)]
    async with listening(queue, after="0") as events:
        assert [(await events.next()).job_id for _ in jobs] == [job.id for job in jobs]


@pytest.mark.everywhere
async def test_resuming_after_any_event_skips_and_repeats_nothing(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(7)])
    async with worker_of(queue, echo, concurrency=3):
        await ended(await queue.add("last"))
    events = await history(queue)
    assert len(events) == 8 * 3
    for number, event in enumerate(events):
        async with listening(queue, after=event.position) as rest:
            following = [await rest.next() for _ in events[number + 1 :]]
            assert following == events[number + 1 :]


async def test_the_position_belongs_to_the_last_returned_event(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(3)])
    async with QueueEvents(queue.name, queue.storage, after="0") as events:
        async for event in events:
            assert events.position == event.position
            if isinstance(event, QueueEvent) and event.job_id == "2":
                break
        async for event in events:  # the same reader continues where it stopped
            assert isinstance(event, QueueEvent)
            assert event.job_id == "3"
            break


async def test_trimmed_events_that_were_not_read_are_counted(queue: AnyQueue, store: RunningStore) -> None:
    async with QueueEvents(queue.name, queue.storage) as events:
        before = events.position
    for _ in range(10):
        await queue.add("n")
    await store.ask("XTRIM", f"glide:{{{queue.name}}}:events", "MAXLEN", 3)
    async with listening(queue, after=before) as reader:
        gap = await reader.gap()
        assert gap.missed == 7
        assert [(await reader.next()).job_id for _ in range(3)] == ["8", "9", "10"]
    async with listening(queue, after=gap.position) as reader:
        assert (await reader.next()).job_id == "8"


async def test_events_arrive_without_polling(queue: AnyQueue, store: RunningStore) -> None:
    loop = asyncio.get_running_loop()
    took: list[float] = []
    async with listening(queue) as events:
        for _ in range(5):
            waiting = asyncio.ensure_future(events.next())
            await waits_for_events(store)
            began = loop.time()
            await queue.add("n")
            await soon(waiting)
            took.append(loop.time() - began)
    # Most of them, because a host may pause now and then.
    assert median(took) < BLOCK_SECONDS / 4


async def test_every_reader_gets_every_event(queue: AnyQueue) -> None:
    async with listening(queue) as one, listening(queue) as two:
        await queue.add("n")
        assert await one.next() == await two.next()


async def test_each_kind_of_event_has_its_cause(queue: AnyQueue) -> None:
    gate = Gate()

    async def later(job: AnyJob) -> Any:
        if job.fence == 1 and job.data == "later":
            raise RetryLater(0.01)
        return await gate(job)

    async with worker_of(queue, later, concurrency=3, shutdown_timeout=0):
        revoked = await queue.add("n", "revoked")
        await gate.running()
        await queue.add("n", "returned")
        await gate.running()
        await queue.add("n", "later")
        await gate.running()
        await revoked.revoke()
        await ended(revoked)
    delayed = await queue.add("n", delay=60)
    await delayed.promote()
    await delayed.update_data(1)
    await delayed.remove()
    await queue.pause()
    await queue.resume()
    kinds = [event.kind for event in await history(queue)]
    assert set(kinds) == {
        "added", "active", "delayed", "waiting", "revoking", "failed", "returned", "updated", "removed", "paused",
        "resumed",
    }  # fmt: skip


async def test_closing_ends_the_iteration(queue: AnyQueue, storage: Storage) -> None:
    for other in (storage, storage.clone()):
        events = QueueEvents(queue.name, other)
        await events.connect()
        seen: list[Any] = []

        async def read(events: QueueEvents = events, seen: list[Any] = seen) -> None:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - it never ends by itself

        reading = asyncio.create_task(read())
        await queue.add("n")
        await until(partial(bool, seen))
        await events.close()
        await events.close()
        await soon(reading, 5)
        with pytest.raises(QueueClosed, match=queue.name):
            await events.connect()
        if other is not storage:
            await other.close()


@pytest.mark.parametrize("after", ["", "1", "1-1", "a-b/1/1", "1-1/x/1", "0/0"])
def test_a_bad_position_is_refused(after: str) -> None:
    with pytest.raises(ValueError, match="position of an earlier event"):
        QueueEvents("q", "memory://", after=after)


async def test_a_job_name_may_contain_any_text(queue: AnyQueue) -> None:
    job = await queue.add("a|b;c=ü😀", job_id="x/y z")
    event = (await history(queue))[0]
    assert (event.job_id, event.detail) == (job.id, job.name)
