"""Waiting for results: request and reply through the queue, failures, timeouts, and removed records."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from statistics import median
from typing import Any

import pytest

from glidemq_async import JobFailed, JobNotFound, Queue, QueueClosed, ResultTimeout
from glidemq_async.client.result_listener import CONFIRM_SECONDS, RECHECK_SECONDS, ResultListener
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, Gate, counts, echo, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waited_for, waits_for_results


@pytest.mark.everywhere
async def test_a_request_gets_its_reply(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=10):
        assert await queue.add_and_wait("n", [1, b"2"], wait_timeout=10) == [1, b"2"]
        values = await asyncio.gather(*(queue.add_and_wait("n", n, wait_timeout=10) for n in range(50)))
    assert values == list(range(50))


@pytest.mark.everywhere
async def test_a_failure_reaches_the_waiting_client(queue: AnyQueue) -> None:
    async def fail(job: AnyJob) -> None:
        raise LookupError(f"no such thing: {job.data}")

    async with worker_of(queue, fail):
        job = await queue.add("n", "x")
        for waiting in (job.result(10), queue.add_and_wait("n", "x", wait_timeout=10)):
            with pytest.raises(JobFailed) as caught:
                await waiting
            assert (caught.value.error_type, caught.value.message) == ("LookupError", "no such thing: x")
            assert "raise LookupError" in caught.value.traceback
            (note,) = caught.value.__notes__
            assert re.fullmatch(rf"job \S+ \(n\) of queue {queue.name!r}", note)


async def test_a_result_can_be_read_again(queue: AnyQueue) -> None:
    job = await queue.add("n", 5)
    async with worker_of(queue, echo):
        assert await job.result(10) == 5
        assert await job.result(10) == 5
    stored = await queue.get_job(job.id)
    assert stored is not None
    assert await stored.result(10) == 5
    assert stored.return_value == 5


async def test_every_waiting_client_is_notified(storage: Storage, queue: AnyQueue) -> None:
    job = await queue.add("n", 5)
    async with Queue[Any, Any](queue.name, storage) as other:
        elsewhere = await other.get_job(job.id)
        assert elsewhere is not None
        waiting = [asyncio.create_task(one.result(10)) for one in (job, job, elsewhere)]
        await waits_for_results(queue, 2)
        await waits_for_results(other)
        async with worker_of(queue, echo):
            assert await asyncio.gather(*waiting) == [5, 5, 5]


@pytest.mark.parametrize("size", [65_530, 65_537, 900_000])
async def test_large_results_arrive(queue: AnyQueue, size: int) -> None:
    async with worker_of(queue, _bytes):
        assert await queue.add_and_wait("n", size, wait_timeout=10) == b"r" * size


async def _bytes(job: AnyJob) -> bytes:
    return b"r" * int(job.data)


async def _nothing(job: AnyJob) -> None:
    pass


async def test_none_is_a_result(queue: AnyQueue) -> None:
    async with worker_of(queue, _nothing):
        assert await queue.add_and_wait("n", wait_timeout=10) is None
        job = await queue.add("n")
        assert await job.result(10) is None
    await job.refresh()
    assert (job.state, job.return_value) == ("completed", None)


@pytest.mark.everywhere
async def test_a_timeout_of_the_client_does_not_stop_the_job(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    for patience in (0.05, timedelta(milliseconds=50)):
        with pytest.raises(ResultTimeout, match=r"0\.05 s"):
            await job.result(patience)
    with pytest.raises(TimeoutError):
        await queue.add_and_wait("n", 2, wait_timeout=0.05)
    async with worker_of(queue, echo):
        assert await job.result(10) == 1


async def test_a_cancelled_wait_leaves_no_waiter_behind(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    waiting = asyncio.create_task(job.result())
    await waits_for_results(queue)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.everywhere
async def test_removing_a_waiting_job_notifies_the_client(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    waiting = asyncio.create_task(job.result(10))
    await waits_for_results(queue)
    await job.remove()
    with pytest.raises(JobNotFound, match=job.id):
        await waiting
    with pytest.raises(JobNotFound):
        await job.result(10)


async def test_removing_an_active_job_notifies_the_client(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        waiting = asyncio.create_task(queue.add_and_wait("n", 1, job_id="a", wait_timeout=10))
        job = await gate.running()
        await job.remove()
        with pytest.raises(JobNotFound):
            await waiting
        await gate.stopped()


@pytest.mark.everywhere
async def test_a_result_without_retention_reaches_the_waiting_client(queue: AnyQueue, store: RunningStore) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=3):
        asked = asyncio.create_task(queue.add_and_wait("n", 1, keep_completed=False, wait_timeout=10))
        job = await queue.add("n", 2, keep_completed=False)
        waiting = asyncio.create_task(job.result(10))
        unasked = await queue.add("n", 3, keep_completed=False)
        for _ in range(3):
            await gate.running()
        await waited_for(queue, store, 2)
        gate.release()
        assert [await asked, await waiting] == [1, 2]
    # The results have arrived, so nothing is stored for them either.
    async with asyncio.timeout(10):
        while await counts(queue):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await queue.get_job(unasked.id) is None
    with pytest.raises(JobNotFound, match="keep_completed"):
        await unasked.result(10)


async def test_a_waiting_client_gets_its_reply_without_polling(queue: AnyQueue) -> None:
    loop = asyncio.get_running_loop()
    async with worker_of(queue, echo):
        await queue.add_and_wait("n", 1, wait_timeout=10)
        took: list[float] = []
        for number in range(20):
            started = loop.time()
            assert await queue.add_and_wait("n", number, wait_timeout=10) == number
            took.append(loop.time() - started)
    # A waiting client reads the record by itself after this time.
    assert median(took) < RECHECK_SECONDS / 2


async def test_closing_the_queue_ends_the_wait(storage: Storage, name: str) -> None:
    queue: AnyQueue = Queue(name, storage)
    job = await queue.add("n", 1)
    waiting = asyncio.create_task(job.result())
    await waits_for_results(queue)
    await queue.close()
    done, _ = await asyncio.wait([waiting], timeout=5)
    assert done, "closing the queue must end every wait"
    assert waiting.cancelled() or waiting.exception() is not None


async def test_waiting_for_an_unknown_job_raises(queue: AnyQueue) -> None:
    job = await queue.add("n", 1)
    await job.remove()
    with pytest.raises(JobNotFound, match=job.id):
        await soon(job.result(), 5)


async def test_an_end_that_is_read_while_the_queue_closes_makes_no_call_afterwards(
    storage: Storage, queue: AnyQueue
) -> None:
    relay, reached, released = Relay(storage), asyncio.Event(), asyncio.Event()

    async def hold(function: str, _args: object, _reply: object) -> None:
        if function.endswith("awaitJob"):
            reached.set()
            await released.wait()

    relay.after_call = hold
    job = await queue.add("n", 5)
    async with worker_of(queue, echo):
        await job.result(10)
    async with Queue[Any, Any](queue.name, relay) as closing:
        found = await closing.get_job(job.id)
        assert found is not None
        waiting = asyncio.create_task(found.result(10))
        await soon(reached.wait())
    calls = len(relay.calls)
    released.set()
    with pytest.raises(QueueClosed):
        await waiting
    await asyncio.sleep(2 * CONFIRM_SECONDS)  # a confirmation would have been sent by now
    assert len(relay.calls) == calls


async def test_the_caller_of_a_request_continues_in_the_turn_of_its_message(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The iteration of the event loop that a future takes is a tenth of the time of a request."""
    ended: list[bool] = []
    original = ResultListener._on_message  # pyright: ignore[reportPrivateUsage]

    def on_message(self: ResultListener, message: bytes) -> None:
        original(self, message)
        ended.append(asked.done())

    gate = Gate()
    monkeypatch.setattr(ResultListener, "_on_message", on_message)
    async with worker_of(queue, gate):
        asked = asyncio.create_task(queue.add_and_wait("n", 1))
        await waits_for_results(queue)  # the reply to the add comes before the message
        gate.release()
        assert await asked == 1
    assert ended == [True]
