"""Workers that close or lose their link, listeners that raise, and concurrent starts leave no job stranded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from glidemq_async import Queue, QueueEvent, QueueEvents
from glidemq_async.storage import Storage, Subscription
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore


async def test_closing_strands_no_job_that_was_just_claimed(storage: Storage, name: str) -> None:
    """The reply of the claim comes after the worker was asked to stop. It releases the jobs unstarted, without a
    stall.
    """
    relay = Relay(storage)
    claimed, go_on = asyncio.Event(), asyncio.Event()
    runs: list[Any] = []

    async def hold(function: str, args: Sequence[Any], reply: Any) -> None:
        if function == "settleAndClaim" and reply[2]:
            claimed.set()
            await go_on.wait()

    async def note(job: AnyJob) -> None:
        runs.append(job.data)

    relay.after_call = hold
    async with Queue[Any, Any](name, relay) as queue:
        jobs = await queue.add_bulk([("n", number) for number in range(4)])
        worker = worker_of(queue, note, concurrency=2)
        await worker.start()
        await soon(claimed.wait())
        stopping = Heard(worker, "closing")
        closing = asyncio.create_task(worker.close())
        await stopping.next()
        go_on.set()
        await soon(closing)
        for job in jobs:
            await job.refresh()
        assert runs == []
        assert [(job.state, job.stalled_count, job.attempts_made) for job in jobs] == [("waiting", 0, 0)] * 4
        assert [job.data for job in await queue.get_jobs("waiting")] == [0, 1, 2, 3]


async def test_a_full_worker_claims_no_further_job(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2):
        await queue.add_bulk([("n", number) for number in range(20)])
        await gate.running()
        await gate.running()
        assert (await queue.get_job_counts())["active"] == 2
        gate.release()


class LostMessages(Relay):
    """Every message on a worker's channel is lost, as when the link breaks at the wrong time."""

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        return await super().subscribe(key, channel, lambda message: None, on_change)


async def test_a_lost_message_about_a_revocation_is_compensated(storage: Storage, queue: AnyQueue) -> None:
    gate = Gate()
    async with (
        Queue[Any, Any](queue.name, LostMessages(storage)) as without_messages,
        worker_of(without_messages, gate, lock_duration=1),
    ):
        job = await queue.add("n", 1)
        await without_messages.resume()
        async with asyncio.timeout(10):
            while gate.started.empty():
                await asyncio.sleep(0.01)
                await queue.get_job_counts()
                if gate.started.empty() and not (await queue.get_job_counts())["active"]:
                    await asyncio.sleep(0.05)
        await job.revoke()
        await gate.stopped()
        assert (await ended(job)).failed_reason == "revoked"


async def test_a_revocation_before_the_subscription_is_received_after_it(storage: Storage, queue: AnyQueue) -> None:
    """A worker claims before its subscription is confirmed. Messages sent until then reach no client."""
    gate = Gate()
    relay = LateLink(storage)
    job = await queue.add("n", 1)
    async with Queue[Any, Any](queue.name, relay) as late, worker_of(late, gate, lock_duration=60):
        await gate.running()
        await job.revoke()
        relay.connect_links()
        # A renewal would report it only after a third of the lease.
        await soon(gate.stopped(), 10)
        assert (await ended(job)).failed_reason == "revoked"


class LateLink(Relay):
    """Subscriptions start when the test permits it."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._up = False
        self._changes: list[Callable[[bool], None]] = []

    def connect_links(self) -> None:
        self._up = True
        for change in self._changes:
            change(True)

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        self._changes.append(on_change)

        def message(payload: bytes) -> None:
            if self._up:
                on_message(payload)

        return await super().subscribe(key, channel, message, lambda up: on_change(up) if self._up else None)


async def test_events_are_not_repeated_after_a_listener_raised(queue: AnyQueue) -> None:
    await queue.add_bulk([("n", number) for number in range(10)])
    seen: list[str] = []
    async with QueueEvents(queue.name, queue.storage, after="0") as events:
        while len(seen) < 10:
            try:
                async for event in events:
                    assert isinstance(event, QueueEvent)
                    seen.append(event.job_id)
                    if len(seen) % 3 == 0:
                        raise RuntimeError("listener")
                    if len(seen) == 10:
                        break
            except RuntimeError:
                continue
    assert seen == [str(number) for number in range(1, 11)]


async def test_events_between_connecting_and_reading_are_not_lost(queue: AnyQueue) -> None:
    async with QueueEvents(queue.name, queue.storage) as events:
        job = await queue.add("n")
        async for event in events:
            assert isinstance(event, QueueEvent)
            assert event.job_id == job.id
            break


async def test_events_carry_no_payloads(queue: AnyQueue, store: RunningStore) -> None:
    async with worker_of(queue, echo):
        job = await ended(await queue.add("n", b"x" * 100_000))
        await job.update_progress(b"y" * 100_000)
    stored = await store.ask("XRANGE", f"glide:{{{queue.name}}}:events", "-", "+")
    assert len(repr(stored)) < 5_000


async def test_many_concurrent_calls_open_a_queue_once(storage: Storage, name: str) -> None:
    relay = Relay(storage)
    queue: AnyQueue = Queue(name, relay)
    await asyncio.gather(*(queue.get_job_counts() for _ in range(20)), *(queue.add("n") for _ in range(20)))
    assert relay.calls.count("openQueue") == 1
    await queue.close()


async def test_thousands_of_jobs_are_settled_and_started_in_one_call(queue: AnyQueue) -> None:
    """Argument lists and replies of any size pass through the functions."""
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2_500) as worker:
        completed = Heard(worker, "completed")
        await queue.add_bulk([("n", number) for number in range(2_500)])
        for _ in range(2_500):
            await gate.running()
        gate.release()
        for _ in range(2_500):
            await completed.next()
    # A call may leave a few more jobs than the retention of 1,000 keeps.
    assert 1_000 <= (await queue.get_job_counts())["completed"] <= 1_015


async def test_large_records_are_unlinked_not_deleted(queue: AnyQueue, store: RunningStore) -> None:
    """Freeing a megabyte in the foreground would block the server for every client."""
    await store.command("CONFIG", "RESETSTAT")
    async with worker_of(queue, echo) as worker:
        completed = Heard(worker, "completed")
        await queue.add("n", b"x" * 500_000, keep_completed=0)
        await completed.next()
        await (await queue.add("n", b"x" * 500_000, delay=60)).remove()
    [stats] = await store.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    assert b"cmdstat_unlink:" in stats
    assert b"cmdstat_del:" not in stats


async def test_the_clients_clock_decides_nothing(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    async with worker_of(queue, echo):
        job = await queue.add("n", 1, delay=0.1)
        assert job.state == "delayed"
        assert await job.result(5) == 1
    assert job.created_at is not None
    assert abs(job.created_at.timestamp() - real()) < 60
