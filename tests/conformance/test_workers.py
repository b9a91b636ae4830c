"""Workers: their concurrency, their events, and the release of their jobs when they stop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from glidemq_async import Job, Queue, QueueClosed, Worker
from glidemq_async.executors import InlineExecutor
from glidemq_async.storage import Storage
from glidemq_async.worker.listeners import WorkerEvent
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, job_events, soon, until, worker_of
from tests.support.stores import RunningStore


@pytest.mark.everywhere
async def test_a_worker_runs_as_many_jobs_as_its_concurrency(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=3) as worker:
        jobs = await queue.add_bulk([("n", number) for number in range(10)])
        for _ in range(3):
            await gate.running()
        await asyncio.sleep(0.05)
        assert (worker.running, gate.started.qsize()) == (3, 0)
        assert (await queue.get_job_counts())["active"] == 3
        gate.release()
        assert [await job.result(10) for job in jobs] == list(range(10))
        assert worker.running == 0


@pytest.mark.everywhere
async def test_several_workers_share_the_work_and_no_job_runs_twice(queue: AnyQueue) -> None:
    runs: list[int] = []

    async def note(job: AnyJob) -> None:
        runs.append(job.data)
        await asyncio.sleep(0)

    workers = [worker_of(queue, note, concurrency=5) for _ in range(4)]
    for worker in workers:
        await worker.start()
    jobs = await queue.add_bulk([("n", number) for number in range(400)])
    for job in jobs:
        await job.result(10)
    for worker in workers:
        await worker.close()
    assert sorted(runs) == list(range(400))


def _note(heard: list[tuple[Any, ...]], *details: Any) -> None:
    heard.append(details)


async def test_a_worker_emits_its_events(queue: AnyQueue) -> None:
    async def work(job: AnyJob) -> Any:
        if job.data == "fails" or (job.data == "flaky" and not job.attempts_made):
            raise ValueError(job.data)
        return job.data

    worker = worker_of(queue, work)
    heard: list[tuple[Any, ...]] = []
    events: list[WorkerEvent] = ["active", "completed", "failed", "retrying", "closing", "closed"]
    for event in events:
        worker.on(event, partial(_note, heard, event))
    async with worker:
        for data in ("good", "flaky", "fails"):
            await ended(await queue.add("n", data, attempts=2 if data == "flaky" else 1))
    reported = [(event, details[0].data if details else None) for event, *details in heard]
    assert reported == [
        ("active", "good"), ("completed", "good"),
        ("active", "flaky"), ("retrying", "flaky"), ("active", "flaky"), ("completed", "flaky"),
        ("active", "fails"), ("failed", "fails"),
        ("closing", None), ("closed", None),
    ]  # fmt: skip
    assert heard[1][2] == "good"
    assert (str(heard[3][2]), heard[3][3]) == ("flaky", 0)
    assert isinstance(heard[7][2], ValueError)
    assert (heard[7][1].state, heard[5][1].state) == ("failed", "completed")


async def test_outcomes_are_emitted_after_they_are_stored(queue: AnyQueue) -> None:
    states: list[str] = []

    async def look(job: AnyJob, result: Any) -> None:
        stored = await queue.get_job(job.id)
        states.append(stored.state if stored else "none")

    worker = worker_of(queue, echo)
    worker.on("completed", look)
    async with worker:
        for number in range(5):
            await ended(await queue.add("n", number))
            await until(lambda number=number: len(states) > number)  # type: ignore[misc]
    assert states == ["completed"] * 5


async def test_a_failing_listener_affects_nothing_else(queue: AnyQueue) -> None:
    def broken(*details: Any) -> None:
        raise RuntimeError("listener")

    async def broken_later(*details: Any) -> None:
        raise RuntimeError("later")

    worker = worker_of(queue, echo)
    heard = Heard(worker, "completed")
    worker.on("active", broken)
    worker.on("completed", broken_later)
    async with worker:
        assert await (await queue.add("n", 1)).result(10) == 1
        assert await (await queue.add("n", 2)).result(10) == 2
        await heard.next()
        await heard.next()


@pytest.mark.only_on("memory")
async def test_an_unknown_event_is_refused(queue: AnyQueue) -> None:
    worker: Any = worker_of(queue, echo)
    with pytest.raises(ValueError, match=r"'done'.*completed"):
        worker.on("done", print)
    await worker.close()


@pytest.mark.everywhere
async def test_stopping_lets_active_jobs_end(queue: AnyQueue) -> None:
    gate = Gate()
    worker = worker_of(queue, gate, concurrency=2)
    await worker.start()
    jobs = await queue.add_bulk([("n", number) for number in range(5)])
    await gate.running()
    await gate.running()
    stopping = Heard(worker, "closing")
    closing = asyncio.create_task(worker.close())
    await stopping.next()
    await queue.is_paused()
    assert not closing.done()
    gate.release()
    await soon(closing)
    assert [await job.get_state() for job in jobs] == ["completed", "completed", "waiting", "waiting", "waiting"]


@pytest.mark.everywhere
async def test_jobs_that_do_not_end_in_time_are_released(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=2, shutdown_timeout=0.05) as worker:
        returned = Heard(worker, "returned")
        jobs = await queue.add_bulk([("n", number) for number in range(3)])
        held = [await gate.running(), await gate.running()]
    assert [job.abort.reason for job in held] == ["shutdown", "shutdown"]
    assert returned.count == 2
    for job in jobs:
        await job.refresh()
    assert [(job.state, job.attempts_made, job.stalled_count) for job in jobs] == [("waiting", 0, 0)] * 3
    order: list[int] = []

    async def note(job: AnyJob) -> None:
        order.append(job.data)

    async with worker_of(queue, note):
        for job in jobs:
            await job.result(10)
    assert order == [0, 1, 2]
    assert [kind for kind, _ in await job_events(queue, jobs[0].id)] == [
        "added", "active", "returned", "active", "completed",
    ]  # fmt: skip


async def test_a_released_job_starts_on_another_worker_immediately(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, shutdown_timeout=0) as leaving:
        job = await queue.add("n", 7)
        await gate.running()
        async with worker_of(queue, echo):
            # Long before its lease ends, and no worker polls.
            await leaving.close()
            assert await job.result(10) == 7


async def test_a_handler_that_ignores_its_cancellation_does_not_delay_the_worker(queue: AnyQueue) -> None:
    let_go = asyncio.Event()

    async def deaf(job: AnyJob) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    worker = worker_of(queue, deaf, shutdown_timeout=0)
    await worker.start()
    job = await queue.add("n")
    async with asyncio.timeout(10):
        await until(lambda: worker.running > 0)
        await worker.close()
    assert await job.get_state() == "waiting"
    let_go.set()


async def test_an_ended_worker_leaves_no_trace(queue: AnyQueue, store: RunningStore) -> None:
    for _ in range(3):
        async with worker_of(queue, echo):
            await ended(await queue.add("n"))
    base = f"glide:{{{queue.name}}}"
    assert await store.ask("XINFO", "CONSUMERS", f"{base}:fifo", "workers") == []
    assert await store.ask("EXISTS", f"{base}:consumers") == 0


async def test_a_worker_can_be_closed_twice_and_before_its_start(queue: AnyQueue) -> None:
    worker = worker_of(queue, echo)
    await worker.close()
    await worker.close()
    with pytest.raises(QueueClosed, match=worker.name):
        await worker.start()
    other = worker_of(queue, echo)
    await other.start()
    await other.start()
    await asyncio.gather(other.close(), other.close())


async def test_a_worker_opens_its_own_url(store: RunningStore, queue: AnyQueue) -> None:
    async with Worker[Any, Any](queue.name, echo, store.url, handle_signals=False):
        assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1


async def test_the_worker_shows_its_identity(queue: AnyQueue, store: RunningStore) -> None:
    async with worker_of(queue, echo, name="emails", concurrency=4) as worker:
        assert worker.name.startswith("emails-")
        assert (worker.queue, worker.storage) == (queue.name, queue.storage)
        assert "0/4" in repr(worker)
        await ended(await queue.add("n"))
        assert worker.health().ready


async def test_large_payloads_do_not_overfill_a_claim(queue: AnyQueue) -> None:
    """A worker receives large payloads in several calls."""
    jobs = await queue.add_bulk([("n", b"x" * 400_000) for _ in range(12)])
    sizes: list[int] = []

    async def size(job: AnyJob) -> None:
        sizes.append(len(job.data))

    async with worker_of(queue, size, concurrency=12):
        for job in jobs:
            await job.result(10)
    assert sizes == [400_000] * 12


async def test_a_handler_may_use_the_queue(queue: AnyQueue) -> None:
    async def fan_out(job: AnyJob) -> int:
        if job.name == "leaf":
            return int(job.data)
        return sum(await asyncio.gather(*(queue.add_and_wait("leaf", n, wait_timeout=10) for n in range(5))))

    async with worker_of(queue, fan_out, concurrency=6):
        assert await queue.add_and_wait("root", wait_timeout=10) == 10


async def test_a_callable_object_is_a_handler(queue: AnyQueue) -> None:
    class Doubler:
        async def __call__(self, job: Job[int, int]) -> int:
            return job.data * 2

    async with worker_of(queue, Doubler()):
        assert await queue.add_and_wait("n", 4, wait_timeout=10) == 8


@pytest.mark.only_on("memory")
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"concurrency": 0}, ValueError, "concurrency"),
        ({"concurrency": 1.5}, TypeError, "concurrency"),
        ({"concurrency": True}, TypeError, "concurrency"),
        ({"lock_duration": 0.5}, ValueError, "lock_duration"),
        ({"lock_duration": 90_000}, ValueError, "lock_duration"),
        ({"lock_duration": float("nan")}, ValueError, "lock_duration"),
        ({"max_stalled": -1}, ValueError, "max_stalled"),
        ({"poll_interval": 0}, ValueError, "poll_interval"),
        ({"poll_interval": "5"}, TypeError, "poll_interval"),
        ({"shutdown_timeout": -1}, ValueError, "shutdown_timeout"),
        ({"name": "a\nb"}, ValueError, "worker name"),
        ({"name": 7}, TypeError, "worker name"),
        ({"name": "a{1}"}, ValueError, "worker name"),
        ({"executor": "thread"}, TypeError, "inline"),
        ({"executor": "nonesuch"}, ValueError, "inline, thread, subprocess"),
        ({"prefix": "a:b"}, ValueError, "prefix"),
        ({"concurency": 3}, TypeError, "concurency"),
        ({"backoff_strategies": {"a": 3}}, TypeError, "backoff_strategies"),
        ({"backoff_strategies": {"a": echo}}, TypeError, r"'a'.*coroutine function.*plain"),
        ({"backoff_strategies": [echo]}, TypeError, "backoff_strategies must be a dict"),
        ({"backoff_strategies": {7: min}}, TypeError, "names as keys, got 7"),
        ({"executor": 7}, TypeError, "executor must be a name or an Executor, got 7; .*inline, thread, subprocess"),
        ({"executor": InlineExecutor}, TypeError, "class InlineExecutor; pass an instance"),
    ],
)
async def test_bad_options_of_a_worker_are_refused(
    storage: Storage, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Worker("q", echo, storage, **options)


@pytest.mark.only_on("memory")
async def test_a_worker_needs_a_function_and_a_queue(storage: Storage) -> None:
    bad: Any = 7
    with pytest.raises(TypeError, match="processor"):
        Worker("q", bad, storage)
    with pytest.raises(ValueError, match="queue name"):
        Worker("a:b", echo, storage)
    with pytest.raises(TypeError, match="thread"):
        Worker("q", lambda job: 1, storage, executor="inline")


async def test_closing_one_queue_of_two_on_a_storage_keeps_the_other_open(storage: Storage, name: str) -> None:
    """Closing a queue that shares a storage leaves the storage open for the others."""
    async with Queue[Any, Any](name, storage) as queue:
        async with Queue[Any, Any](name, storage) as other:
            await other.add("n", 1)
        async with worker_of(queue, echo):
            assert await queue.add_and_wait("n", 2, wait_timeout=10) == 2
