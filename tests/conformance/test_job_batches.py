"""The batch that `add_bulk` returns: progress, counts, failures, results, and outcomes as jobs end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from glidemq_async import (
    BatchFailed,
    Deduplication,
    Job,
    JobBatch,
    JobFailed,
    JobNotFound,
    JobOptions,
    Queue,
    QueueClosed,
    ResultTimeout,
)
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, echo, soon, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waits_for_results


async def odd_fails(job: AnyJob) -> Any:
    if job.data % 2:
        raise LookupError(f"odd: {job.data}")
    return job.data


async def waiting_jobs(queue: AnyQueue, store: RunningStore, number: int) -> None:
    """Wait until a client waits for this many jobs."""
    async with asyncio.timeout(PATIENCE):
        while await store.ask("HLEN", f"glide:{{{queue.name}}}:waiters") != number:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def calls_of(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each later call of a function is appended."""
    called: list[str] = []
    original = type(queue.storage).call

    async def call(self: Any, function: str, key: str, args: Sequence[Any], **options: Any) -> object:
        called.append(function)
        return await original(self, function, key, args, **options)

    monkeypatch.setattr(type(queue.storage), "call", call)
    return called


@pytest.mark.everywhere
async def test_the_results_of_a_batch_are_in_the_order_of_its_inputs(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(600)])
    async with worker_of(queue, echo, concurrency=20):
        assert await batch.results(10) == list(range(600))
        assert await batch.results(10) == list(range(600))
    assert batch.progress.counts == {"completed": 600}
    assert (batch.progress.total, batch.progress.ended, batch.progress.fraction) == (600, 600, 1.0)


async def test_a_batch_is_a_list_of_jobs(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("a", 1), ("b", 2)])
    assert isinstance(batch, list)
    assert [job.name for job in batch] == ["a", "b"]
    first, second = batch
    assert batch == [first, second]
    assert (len(batch), batch[1].data) == (2, 2)
    assert await queue.add_bulk([]) == []


async def test_an_empty_batch_has_ended(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([])
    assert await batch.results(0) == []
    assert batch.progress.fraction == 1.0
    assert [each async for each in batch] == []
    assert sum((await batch.counts()).values()) == 0


@pytest.mark.everywhere
async def test_results_of_jobs_that_ended_before_the_call_are_found(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", 1), ("n", 2, JobOptions(key="k")), ("n", 3, JobOptions(result_ttl=60))])
    await worker_of(queue, echo).run(until_empty=True)
    assert await batch.results(5) == [1, 2, 3]


async def test_waiting_needs_few_calls_and_leaves_nothing_behind(
    queue: AnyQueue, store: RunningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(1_000)])
    called = calls_of(queue, monkeypatch)
    waiting = asyncio.create_task(batch.results(20))
    await waiting_jobs(queue, store, 1_000)
    assert set(called) == {"awaitJobs"}
    assert len(called) < 50
    async with worker_of(queue, echo, concurrency=50):
        assert await waiting == list(range(1_000))
        assert called.count("awaitJob") == 0
        await waiting_jobs(queue, store, 0)


async def test_progress_makes_no_call_and_counts_reads_only_jobs_that_have_not_ended(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    options = [JobOptions(), JobOptions(delay=60), JobOptions(priority=3), JobOptions(key="k"), JobOptions(key="k")]
    batch = await queue.add_bulk([("n", number, given) for number, given in enumerate(options)])
    called = calls_of(queue, monkeypatch)
    assert batch.progress.counts == {"waiting": 1, "delayed": 1, "prioritized": 1, "key-waiting": 2}
    assert not called
    async with worker_of(queue, gate, concurrency=2):
        await gate.running()
        await gate.running()
        del called[:]
        counts = await batch.counts()
        assert (counts["active"], counts["delayed"], sum(counts.values())) == (2, 1, 5)
        assert [function for function in called if function != "renewLeases"] == ["getHeads"]
        await batch[1].remove()
        gate.release()
        outcomes = await batch.results(10, on_failure="return")
    assert isinstance(outcomes[1].error, JobNotFound)
    assert await batch.counts() == {**dict.fromkeys(counts, 0), "completed": 4, "missing": 1}


async def test_failures_raise_a_group_after_all_jobs_have_ended(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(6)])
    async with worker_of(queue, odd_fails):
        with pytest.raises(BatchFailed, match="3 of 6 jobs have no result") as caught:
            await batch.results(10)
    errors = [error for error in caught.value.exceptions if isinstance(error, JobFailed)]
    assert [error.message for error in errors] == ["odd: 1", "odd: 3", "odd: 5"]
    assert errors[1].__notes__[-1] == f"job {batch[3].id} at position 3 of the batch"
    failed, rest = caught.value.split(JobNotFound)
    assert failed is None
    assert isinstance(rest, BatchFailed)


async def test_failures_can_be_returned_instead(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(4)])
    async with worker_of(queue, odd_fails):
        outcomes = await batch.results(10, on_failure="return")
    assert [outcome.job for outcome in outcomes] == list(batch)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True, False]
    assert outcomes[2].value == 2
    with pytest.raises(JobFailed, match="odd: 3"):
        _ = outcomes[3].value
    with pytest.raises(ValueError, match="on_failure"):
        await batch.results(on_failure="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def test_failures_are_found_without_waiting(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", 1), ("n", 2), ("n", 3, JobOptions(delay=60)), ("n", 5)])
    assert await batch.failures() == []
    await worker_of(queue, odd_fails).run(until_empty=True)
    await batch[3].remove()
    first, gone = await batch.failures()
    assert (first.job, str(first.error)) == (batch[0], "LookupError: odd: 1")
    assert gone.job is batch[3]
    assert isinstance(gone.error, JobNotFound)


@pytest.mark.everywhere
async def test_outcomes_come_in_the_order_in_which_the_jobs_end(queue: AnyQueue) -> None:
    release = [asyncio.Event() for _ in range(3)]

    async def held(job: AnyJob) -> int:
        await release[int(job.data)].wait()
        return int(job.data)

    batch = await queue.add_bulk([("n", number) for number in range(3)])
    seen: list[int] = []
    async with worker_of(queue, held, concurrency=3):
        release[2].set()
        async for outcome in batch:
            seen.append(outcome.value)
            release[{2: 0, 0: 1}.get(outcome.value, 1)].set()
    assert seen == [2, 0, 1]


async def test_duplicates_in_a_batch_have_the_same_result(queue: AnyQueue) -> None:
    twice = JobOptions(job_id="same")
    once = JobOptions(deduplication=Deduplication("d"))
    batch = await queue.add_bulk([("n", 1, twice), ("n", 2, twice), ("n", 3, once), ("n", 4, once)])
    async with worker_of(queue, echo):
        assert await batch.results(10) == [1, 1, 3, 3]
        assert len([each async for each in batch]) == 4


async def test_a_timeout_tells_the_number_of_open_jobs_and_keeps_what_arrived(queue: AnyQueue) -> None:
    gate = Gate()

    async def work(job: AnyJob) -> Any:
        return await gate(job) if job.data else "quick"

    batch = await queue.add_bulk([("n", 0, JobOptions(keep_completed=False)), ("n", 1), ("n", 2)])
    async with worker_of(queue, work, concurrency=3):
        with pytest.raises(ResultTimeout, match=r"[23] of 3 jobs did not end within 0\.1 s"):
            await batch.results(0.1)
        gate.release()
        outcomes = await batch.results(10, on_failure="return")
    assert [outcome.value for outcome in outcomes[1:]] == [1, 2]


@pytest.mark.parametrize("how", ["cancel", "break"])
async def test_a_caller_that_leaves_cancels_its_registrations(queue: AnyQueue, store: RunningStore, how: str) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(700)])
    first = await queue.add("n", "first", priority=0, lifo=True)

    async def leave_early() -> None:
        async for _ in JobBatch([first, *batch]):
            return

    leaving = asyncio.create_task(batch.results() if how == "cancel" else leave_early())
    await waiting_jobs(queue, store, 700 if how == "cancel" else 701)
    if how == "cancel":
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    else:
        one = asyncio.Event()

        async def run_one(job: AnyJob) -> Any:
            if one.is_set():
                await asyncio.Event().wait()
            one.set()

        async with worker_of(queue, run_one, shutdown_timeout=0):
            await soon(leaving)
    await waiting_jobs(queue, store, 0)
    assert await queue.check() == []


async def test_another_waiter_of_the_same_job_is_not_cancelled(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", 1), ("n", 2)])
    one = asyncio.create_task(batch[0].result(10))
    two, three = asyncio.create_task(batch.results(10)), asyncio.create_task(batch.results(10))
    await waits_for_results(queue, 3)
    two.cancel()
    with pytest.raises(asyncio.CancelledError):
        await two
    async with worker_of(queue, echo):
        assert await one == 1
        assert await three == [1, 2]


@pytest.mark.everywhere
async def test_ends_are_found_after_a_lost_connection(queue: AnyQueue, store: RunningStore) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(300)])
    waiting = asyncio.create_task(batch.results(20))
    await waiting_jobs(queue, store, 300)
    await store.command("CLIENT", "KILL", "TYPE", "pubsub")
    async with worker_of(queue, echo, concurrency=10):
        assert await soon(waiting) == list(range(300))


async def test_without_messages_the_jobs_are_read_page_by_page(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> Any:
        class Silent:
            def reset(self) -> None: ...
            async def close(self) -> None: ...

        queue._client.results._on_change(False)  # pyright: ignore[reportPrivateUsage]
        return Silent()

    monkeypatch.setattr(type(queue.storage), "subscribe", silent)
    called = calls_of(queue, monkeypatch)
    # The default retention keeps fewer jobs. It could remove results of pages that the client has not read yet.
    kept = JobOptions(keep_completed=True)
    batch = await queue.add_bulk([("n", number, kept) for number in range(1_200)])
    async with worker_of(queue, echo, concurrency=50, poll_interval=0.05):
        assert await batch.results(30) == list(range(1_200))
    assert called.count("awaitJobs") >= 3
    assert called.count("awaitJob") == 0


async def test_jobs_that_the_server_fails_are_read_together(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = await queue.add_bulk([("n", number) for number in range(200)])
    waiting = asyncio.create_task(batch.results(10, on_failure="return"))
    await waits_for_results(queue)
    called = calls_of(queue, monkeypatch)
    for job in batch:
        await job.revoke("enough")
    outcomes = await soon(waiting)
    assert {str(outcome.error) for outcome in outcomes} == {"revoked: enough"}
    assert called.count("awaitJob") == 0


async def test_closing_the_queue_ends_the_wait(storage: Storage, name: str) -> None:
    queue = Queue[Any, Any](name, storage)
    batch = await queue.add_bulk([("n", 1)])
    waiting = asyncio.create_task(batch.results())
    await waits_for_results(queue)
    await queue.close()
    with pytest.raises(QueueClosed):
        await soon(waiting)


@asynccontextmanager
async def two_queues(storage: Storage, name: str) -> AsyncGenerator[tuple[AnyQueue, AnyQueue]]:
    async with Queue[Any, Any](f"{name}-1", storage) as one, Queue[Any, Any](f"{name}-2", storage) as two:
        yield one, two


async def test_a_batch_can_be_made_of_jobs_of_several_queues(storage: Storage, name: str) -> None:
    async with two_queues(storage, name) as (one, two), worker_of(one, echo), worker_of(two, echo):
        jobs: list[Job[Any, Any]] = [await one.add("n", 1), await two.add("n", 2), await one.add("n", 3)]
        assert await JobBatch(jobs).results(10) == [1, 2, 3]


async def test_the_blocking_form(queue: AnyQueue) -> None:
    batch = await queue.add_bulk([("n", 1), ("n", 3)])

    def use() -> tuple[Any, ...]:
        ended = sorted(outcome.value for outcome in batch.sync.as_ended(10))
        return batch.sync.results(10), ended, batch.sync.counts()["completed"], batch.sync.failures()

    async with worker_of(queue, echo):
        assert await asyncio.to_thread(use) == ([1, 3], [1, 3], 2, [])
