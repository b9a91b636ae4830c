"""Batches: a processor takes a list of jobs, and each job ends, fails, waits or is stopped separately."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from glidemq_async import Backoff, BatchOptions, JobFailed, RateLimited, RetryLater, UnrecoverableError, Worker
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, AnyWorker, Heard, echo, ended, listening, soon, until, worker_of
from tests.support.stores import RunningStore


class Batches:
    """A batch processor that notes its batches. The runs of a gated one wait until the test releases them."""

    def __init__(self, *, gated: bool = False) -> None:
        self.calls: list[list[AnyJob]] = []
        self.started: asyncio.Queue[list[AnyJob]] = asyncio.Queue()
        self.cancelled = 0
        self._open = asyncio.Event()
        if not gated:
            self._open.set()

    async def __call__(self, jobs: list[AnyJob]) -> list[Any]:
        self.calls.append(jobs)
        self.started.put_nowait(jobs)
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [job.data for job in jobs]

    async def running(self) -> list[AnyJob]:
        return await soon(self.started.get())

    def release(self) -> None:
        self._open.set()

    @property
    def sizes(self) -> list[int]:
        return [len(call) for call in self.calls]


def batches_of(queue: AnyQueue, processor: Any, size: int = 10, wait: float = 0, **options: Any) -> AnyWorker:
    return worker_of(queue, processor, batch=BatchOptions(size=size, wait=wait), **options)


async def add(queue: AnyQueue, count: int, **options: Any) -> list[AnyJob]:
    """Add jobs whose data are 0, 1, 2, …"""
    return [await queue.add("n", number, **options) for number in range(count)]


# -- the input of a processor ----------------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_jobs_come_as_lists_in_their_order(queue: AnyQueue) -> None:
    jobs = await add(queue, 25)
    processor = Batches()
    # On a busy machine several claims fill a batch.
    await batches_of(queue, processor, wait=1).run(until_empty=True)
    assert [[job.data for job in call] for call in processor.calls] == [
        list(range(10)), list(range(10, 20)), list(range(20, 25)),
    ]  # fmt: skip
    assert [await job.result(10) for job in jobs] == list(range(25))


async def test_plain_processors_run_in_a_thread(queue: AnyQueue) -> None:
    threads: set[int] = set()

    def process(jobs: list[AnyJob]) -> list[int]:
        threads.add(threading.get_ident())
        return [job.data * 2 for job in jobs]

    jobs = await add(queue, 4)
    await batches_of(queue, process).run(until_empty=True)
    assert [await job.result(10) for job in jobs] == [0, 2, 4, 6]
    assert threading.get_ident() not in threads


async def test_a_batch_without_a_wait_starts_immediately(queue: AnyQueue) -> None:
    processor = Batches()
    async with batches_of(queue, processor, wait=0):
        assert await (await queue.add("n", 1)).result(10) == 1
        assert await (await queue.add("n", 2)).result(10) == 2
    assert processor.sizes == [1, 1]


async def test_a_batch_waits_to_fill_and_starts_when_it_is_full(queue: AnyQueue) -> None:
    processor = Batches()
    async with batches_of(queue, processor, size=3, wait=600) as worker:
        jobs = await add(queue, 2)
        await until(lambda: worker.running == 2)
        assert not processor.calls
        jobs += await add(queue, 1)
        assert [await job.result(10) for job in jobs] == [0, 1, 0]
    assert processor.sizes == [3]


async def test_a_partial_batch_waits_no_longer_than_its_wait(queue: AnyQueue) -> None:
    processor = Batches()
    loop = asyncio.get_running_loop()
    async with batches_of(queue, processor, wait=0.2):
        began = loop.time()
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        assert [await job.result(10) for job in jobs] == [0, 1, 2]
        assert loop.time() - began >= 0.19
    assert processor.sizes == [3]


async def test_jobs_that_wait_for_their_batch_are_active(queue: AnyQueue) -> None:
    async with batches_of(queue, Batches(), wait=600) as worker:
        await add(queue, 3)
        await until(lambda: worker.running == 3)
        assert (await queue.get_job_counts())["active"] == 3


async def test_leases_are_renewed_while_a_batch_fills(queue: AnyQueue) -> None:
    processor = Batches()
    async with batches_of(queue, processor, wait=1.6, lock_duration=1):
        job = await ended(await queue.add("n", 1))
    assert (job.return_value, job.stalled_count, job.fence, processor.sizes) == (1, 0, 1, [1])


async def test_a_batch_has_no_more_jobs_than_a_limit_allows(queue: AnyQueue) -> None:
    await queue.set_global_concurrency(2)
    jobs = await add(queue, 5)
    processor = Batches()
    await batches_of(queue, processor).run(until_empty=True)
    assert [await job.result(10) for job in jobs] == [0, 1, 2, 3, 4]
    assert max(processor.sizes) == 2


async def test_several_batches_run_concurrently(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=2, concurrency=2):
        jobs = await add(queue, 4)
        await processor.running()
        await processor.running()
        processor.release()
        assert [await job.result(10) for job in jobs] == [0, 1, 2, 3]


async def test_a_thousand_jobs_in_a_batch_are_settled_together(queue: AnyQueue) -> None:
    jobs = await queue.add_bulk([("n", number) for number in range(1_000)])
    processor = Batches()
    # One call may claim only a part of the jobs, so the batch waits until it is full.
    async with batches_of(queue, processor, size=1_000, wait=60):
        await ended(jobs[-1])
    assert processor.sizes == [1_000]
    assert (await queue.get_job_counts())["completed"] == 1_000


# -- the return value of a processor --------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_each_entry_is_the_outcome_of_its_job(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> list[Any]:
        return ["done", ValueError("bad"), UnrecoverableError("never"), None]

    jobs = await add(queue, 4, attempts=1)
    await batches_of(queue, process).run(until_empty=True)
    for job in jobs:
        await job.refresh()
    assert [job.state for job in jobs] == ["completed", "failed", "failed", "completed"]
    assert [jobs[0].return_value, jobs[3].return_value] == ["done", None]
    assert [jobs[1].failed_reason, jobs[2].failed_reason] == ["ValueError: bad", "UnrecoverableError: never"]


async def test_a_processor_that_returns_none_completes_its_batch(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> None:
        return

    jobs = await add(queue, 3)
    await batches_of(queue, process).run(until_empty=True)
    assert [(await ended(job)).state for job in jobs] == ["completed"] * 3


async def test_an_exception_of_a_processor_fails_all_jobs(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> None:
        raise ConnectionError("down")

    jobs = await add(queue, 3)
    await batches_of(queue, process).run(until_empty=True)
    assert [(await ended(job)).failed_reason for job in jobs] == ["ConnectionError: down"] * 3
    assert all("in process" in cast("str", job.stacktrace) for job in jobs)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([1], "ValueError: a batch processor must return one entry per job, .* returned 1 entries for 3 jobs"),
        ([1, 2, 3, 4], "returned 4 entries for 3 jobs"),
        ([], "returned 0 entries"),
        (
            {"a": 1},
            "TypeError: a batch processor must return a list with one entry per job, or None, but it returned dict",
        ),
        ("abc", "TypeError: .* it returned str"),
    ],
)
async def test_a_return_value_of_the_wrong_shape_fails_all_jobs_with_a_clear_message(
    queue: AnyQueue, answer: Any, reason: str
) -> None:
    async def process(jobs: list[AnyJob]) -> Any:
        return answer

    jobs = await add(queue, 3)
    await batches_of(queue, process).run(until_empty=True)
    for job in jobs:
        with pytest.raises(JobFailed, match=reason.partition(": ")[2] if ": " in reason else reason):
            await job.result(10)


async def test_an_entry_that_cannot_be_stored_fails_only_its_job(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> list[Any]:
        return [1, object(), 3]

    jobs = await add(queue, 3)
    await batches_of(queue, process).run(until_empty=True)
    assert [(await ended(job)).state for job in jobs] == ["completed", "failed", "completed"]


@pytest.mark.parametrize("strange", [asyncio.CancelledError(), StopIteration(), KeyboardInterrupt(), SystemExit(1)])
async def test_an_invalid_entry_of_the_returned_list_fails_only_its_job(
    queue: AnyQueue, strange: BaseException
) -> None:
    async def process(jobs: list[AnyJob]) -> list[Any]:
        return [1, strange, 3]

    jobs = await add(queue, 3)
    await batches_of(queue, process).run(until_empty=True)
    assert [(await ended(job)).state for job in jobs] == ["completed", "failed", "completed"]


async def test_a_processor_may_cancel_itself(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> None:
        raise asyncio.CancelledError

    jobs = await add(queue, 2)
    await batches_of(queue, process).run(until_empty=True)
    assert [(await ended(job)).state for job in jobs] == ["failed"] * 2


async def test_jobs_are_retried_separately(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> list[Any]:
        seen.append([job.data for job in jobs])
        return [ValueError("once") if job.data % 2 and not job.attempts_made else job.data for job in jobs]

    seen: list[list[int]] = []
    jobs = await add(queue, 4, attempts=2, backoff=Backoff.fixed(0.01))
    await batches_of(queue, process).run(until_empty=True)
    assert [await job.result(10) for job in jobs] == [0, 1, 2, 3]
    assert (seen[0], sorted(number for call in seen[1:] for number in call)) == ([0, 1, 2, 3], [1, 3])
    assert [(await ended(job)).attempts_made for job in jobs] == [1, 2, 1, 2]


async def test_each_job_has_its_own_events(queue: AnyQueue) -> None:
    async def process(jobs: list[AnyJob]) -> list[Any]:
        return [1, ValueError("no"), ValueError("again"), 4]

    worker = batches_of(queue, process)
    heard = {event: Heard(worker, event) for event in ("active", "completed", "failed", "retrying")}
    for attempts in (1, 1, 9, 1):
        await queue.add("n", attempts, attempts=attempts, backoff=Backoff.fixed(60))
    async with worker:
        assert (await heard["failed"].next())[1].args == ("no",)
        assert (await heard["retrying"].next())[2] == 60
        assert [(await heard["completed"].next())[1] for _ in range(2)] == [1, 4]
    assert heard["active"].count == 4


# -- stopping one job -----------------------------------------------------------------------------------------------


async def test_a_revoked_job_is_notified_and_the_others_continue(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=3, wait=600):
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        running = await processor.running()
        assert await jobs[1].revoke() is False
        assert (await ended(jobs[1])).failed_reason == "revoked"
        assert [job.abort.reason for job in running] == ["", "revoked", ""]
        processor.release()
        assert [await jobs[0].result(10), await jobs[2].result(10)] == [0, 2]
    await jobs[1].refresh()
    assert (jobs[1].state, jobs[1].failed_reason, processor.cancelled) == ("failed", "revoked", 0)


async def test_a_removed_job_loses_its_lease_and_the_others_continue(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=3, wait=600) as worker:
        lost = Heard(worker, "lease_lost")
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        running = await processor.running()
        await jobs[0].remove()
        assert (await lost.next())[0].id == jobs[0].id
        assert [job.abort.reason for job in running] == ["lease lost", "", ""]
        processor.release()
        assert [await job.result(10) for job in jobs[1:]] == [1, 2]
        assert await queue.get_job(jobs[0].id) is None


async def test_a_batch_is_cancelled_when_all_its_jobs_are_revoked(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=3, wait=600):
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        await processor.running()
        for job in jobs:
            await job.revoke()
        assert [(await ended(job)).failed_reason for job in jobs] == ["revoked"] * 3
        assert processor.cancelled == 1
        processor.release()
        more = await queue.add_bulk([("n", number) for number in range(3)])
        assert [await job.result(10) for job in more] == [0, 1, 2]


async def test_a_job_revoked_while_its_batch_fills_does_not_reach_the_processor(queue: AnyQueue) -> None:
    processor = Batches()
    async with batches_of(queue, processor, size=3, wait=600) as worker:
        jobs = await add(queue, 2)
        await until(lambda: worker.running == 2)
        await jobs[0].revoke()
        assert (await ended(jobs[0])).failed_reason == "revoked"
        jobs += await add(queue, 2)
        assert [await job.result(10) for job in jobs[1:]] == [1, 0, 1]
    assert processor.sizes == [3]


async def test_a_job_removed_while_its_batch_fills_does_not_reach_the_processor(queue: AnyQueue) -> None:
    processor = Batches()
    async with batches_of(queue, processor, size=2, wait=600) as worker:
        lost = Heard(worker, "lease_lost")
        [first] = await add(queue, 1)
        await until(lambda: worker.running == 1)
        await first.remove()
        await lost.next()
        jobs = await add(queue, 2)
        assert [await job.result(10) for job in jobs] == [0, 1]
    assert [[job.id for job in call] for call in processor.calls] == [[job.id for job in jobs]]


async def test_jobs_of_a_dead_worker_are_reclaimed_one_by_one(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=3, wait=600, lock_duration=1) as dying:
        lost = Heard(dying, "lease_lost")
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        await processor.running()
        # It stops renewing, as if it had died, and keeps its jobs.
        await cast("Any", dying)._session.renewer.stop()
        async with worker_of(queue, shout, lock_duration=1):
            assert [await job.result(10) for job in jobs] == ["0!", "1!", "2!"]
        processor.release()
        assert {(await lost.next())[0].id for _ in jobs} == {job.id for job in jobs}
    assert [(await ended(job)).stalled_count for job in jobs] == [1, 1, 1]
    assert [job.return_value for job in jobs] == ["0!", "1!", "2!"]


async def shout(job: AnyJob) -> str:
    return f"{job.data}!"


# -- timeouts ---------------------------------------------------------------------------------------------------------


async def test_the_timeout_of_a_job_ends_only_its_own_run(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=2, wait=600):
        slow = await queue.add("n", "slow", timeout=0.05)
        other = await queue.add("n", "other")
        running = await processor.running()
        assert (await ended(slow)).failed_reason == "TimeoutError: the run took longer than its timeout of 0.05 s"
        assert [job.abort.reason for job in running] == ["timeout", ""]
        processor.release()
        assert await other.result(10) == "other"
    assert processor.cancelled == 0


async def test_a_batch_is_cancelled_when_the_last_timeout_has_ended(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=2, wait=600):
        jobs = await add(queue, 2, timeout=0.05)
        assert [(await ended(job)).failed_reason for job in jobs] == [
            "TimeoutError: the run took longer than its timeout of 0.05 s"
        ] * 2
        assert processor.cancelled == 1


async def test_the_timeout_counts_from_the_start_of_the_batch(queue: AnyQueue) -> None:
    async with batches_of(queue, Batches(), size=2, wait=600) as worker:
        first = await queue.add("n", 1, timeout=0.5)
        await until(lambda: worker.running == 1)
        await asyncio.sleep(0.6)
        await queue.add("n", 2)
        assert await first.result(10) == 1


async def test_a_thread_that_does_not_end_keeps_the_slots_of_its_batch(queue: AnyQueue) -> None:
    free = threading.Event()
    calls: list[int] = []

    def process(jobs: list[AnyJob]) -> None:
        calls.append(len(jobs))
        free.wait(10)

    async with batches_of(queue, process, size=2, wait=600):
        jobs = await add(queue, 2, timeout=0.05)
        assert [(await ended(job)).state for job in jobs] == ["failed"] * 2
        more = await add(queue, 2)
        await asyncio.sleep(0.05)
        assert (await queue.get_job_counts())["waiting"] == 2
        free.set()
        assert [(await ended(job)).state for job in more] == ["completed"] * 2
    assert calls == [2, 2]


# -- stopping the worker ----------------------------------------------------------------------------------------------


async def test_closing_does_not_wait_for_a_batch_to_fill(queue: AnyQueue) -> None:
    processor = Batches()
    async with batches_of(queue, processor, wait=600) as worker:
        returned = Heard(worker, "returned")
        jobs = await add(queue, 3)
        await until(lambda: worker.running == 3)
    assert (processor.calls, returned.count) == ([], 3)
    assert (await queue.get_job_counts())["waiting"] == 3
    await batches_of(queue, processor).run(until_empty=True)
    assert [[job.data for job in call] for call in processor.calls] == [[0, 1, 2]]
    assert [(await ended(job)).stalled_count for job in jobs] == [0] * 3


async def test_a_burst_does_not_wait_for_a_batch_to_fill(queue: AnyQueue) -> None:
    await add(queue, 3)
    processor = Batches()
    await soon(batches_of(queue, processor, size=2, wait=600).run(until_empty=True))
    assert processor.sizes == [2, 1]


async def test_a_batch_that_does_not_end_in_time_is_released(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=3, wait=600, shutdown_timeout=0) as worker:
        returned = Heard(worker, "returned")
        await queue.add_bulk([("n", number) for number in range(3)])
        running = await processor.running()
    assert (processor.cancelled, returned.count) == (1, 3)
    assert [job.abort.reason for job in running] == ["shutdown"] * 3
    assert (await queue.get_job_counts())["waiting"] == 3


async def test_a_cancelled_processor_may_still_return_finished_outcomes(queue: AnyQueue) -> None:
    started = asyncio.Event()

    async def process(jobs: list[AnyJob]) -> list[Any]:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ["done", RetryLater(0), "done"]
        raise AssertionError

    jobs = await queue.add_bulk([("n", number) for number in range(3)])
    async with batches_of(queue, process, size=3, wait=600, shutdown_timeout=0):
        await soon(started.wait())
    assert [await job.get_state() for job in jobs] == ["completed", "waiting", "completed"]


async def test_a_running_batch_ends_before_its_worker(queue: AnyQueue) -> None:
    processor = Batches(gated=True)
    worker = batches_of(queue, processor, size=3, wait=600)
    await worker.start()
    jobs = await queue.add_bulk([("n", number) for number in range(3)])
    await processor.running()
    closing = asyncio.create_task(worker.close())
    processor.release()
    await soon(closing)
    assert [await job.result(10) for job in jobs] == [0, 1, 2]


# -- defects of other libraries ---------------------------------------------------------------------------------------


async def test_no_job_is_claimed_beyond_the_running_batch(queue: AnyQueue) -> None:
    """Another library fetched more than one batch and left the rest as running."""
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=4):
        jobs = await queue.add_bulk([("n", number) for number in range(10)])
        batch = await processor.running()
        await asyncio.sleep(0.05)
        counts = await queue.get_job_counts()
        assert (counts["active"], counts["waiting"]) == (len(batch), 10 - len(batch))
        async with worker_of(queue, echo):
            mine = {job.id for job in batch}
            assert {await job.result(10) for job in jobs if job.id not in mine} == set(range(len(batch), 10))
        processor.release()


async def test_no_job_waits_behind_a_batch_that_started_before_it_was_full(queue: AnyQueue) -> None:
    """A batch of one runs. The worker must not claim a new job that would wait for its end, because another worker
    is free.
    """
    processor = Batches(gated=True)
    async with batches_of(queue, processor, size=10):
        first = await queue.add("n", "first")
        await processor.running()
        async with worker_of(queue, echo):
            assert await (await queue.add("n", "second")).result(10) == "second"
        processor.release()
        assert await first.result(10) == "first"
    assert processor.sizes == [1]


async def test_jobs_from_every_location_reach_the_processor_as_lists(queue: AnyQueue, store: RunningStore) -> None:
    """In another library, jobs that did not come from the stream took the path of single jobs and all failed."""
    fake_worker = FakeWorker(queue, store)
    jobs = await add(queue, 2)
    for lease in await fake_worker.claim(2):
        await fake_worker.settle(lease, "b")  # released
    delayed = await queue.add("n", "delayed", delay=600)
    await delayed.promote()
    routed = [
        await queue.add("n", "urgent", priority=1),
        await queue.add("n", "last in", lifo=True),
        await queue.add("n", "keyed", key="k"),
    ]
    retried = await queue.add("n", "retried", attempts=2)
    for lease in await fake_worker.claim(10):
        await fake_worker.settle(
            lease, "b" if lease.id != retried.id else "r", "0 broken" if lease.id == retried.id else None
        )
    processor = Batches()
    await batches_of(queue, processor).run(until_empty=True)
    assert sorted(job.id for call in processor.calls for job in call) == sorted(
        job.id for job in [*jobs, delayed, *routed, retried]
    )
    assert (await queue.get_job_counts())["failed"] == 0
    await fake_worker.leave()


async def test_a_timeout_is_not_mistaken_for_a_revocation(queue: AnyQueue) -> None:
    async with batches_of(queue, Batches(gated=True)):
        job = await ended(await queue.add("n", 1, timeout=0.05))
    assert job.failed_reason is not None
    assert job.failed_reason.startswith("TimeoutError")


@pytest.mark.parametrize(("control", "kind"), [(RetryLater(60), "delayed"), (RateLimited(60), "limited")])
async def test_control_exceptions_work_inside_a_batch(queue: AnyQueue, control: Exception, kind: str) -> None:
    async def process(jobs: list[AnyJob]) -> list[Any]:
        return [job.data or control for job in jobs]

    jobs = await add(queue, 2)
    async with listening(queue) as events, batches_of(queue, process):
        assert await jobs[1].result(10) == 1
        while (await events.next()).kind != kind:
            pass
    await jobs[0].refresh()
    assert (jobs[0].attempts_made, jobs[0].failed_reason) == (0, None)


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.only_on("memory")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 0}, ValueError, "batch size must be from 1"),
        ({"size": 1_001}, ValueError, "batch size must be from 1 to 1000, got 1001"),
        ({"size": 1.5}, TypeError, "batch size must be an int"),
        ({"wait": -1}, ValueError, "batch wait must not be negative"),
        ({"wait": "1"}, TypeError, "batch wait must be seconds"),
    ],
)
async def test_bad_batch_options_are_refused(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BatchOptions(**options)


@pytest.mark.only_on("memory")
async def test_a_value_that_is_not_batch_options_is_refused() -> None:
    with pytest.raises(TypeError, match="batch must be BatchOptions, got 10"):
        Worker("q", echo, "memory://", batch=cast("Any", 10))


@pytest.mark.only_on("memory")
async def test_batch_options_compare_by_value() -> None:
    assert BatchOptions(size=5, wait=1) == BatchOptions(size=5, wait=1.0)
    assert BatchOptions().size == 100
