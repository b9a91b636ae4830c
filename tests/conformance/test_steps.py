"""Steps that handlers run: each is recorded once, and later runs of the job get its result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from typing_extensions import override

from glidemq_async import (
    Encryption,
    JobFailed,
    JobNotFound,
    JobStateError,
    JournalFull,
    LeaseLost,
    PayloadTooLarge,
    Queue,
    SerializationError,
    StepLimits,
    generate_key,
)
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, soon, until, worker_of
from tests.support.hooked_storage import HookedStorage
from tests.support.stores import RunningStore

Handler = Callable[[AnyJob], Awaitable[Any]]


class Effects:
    """The calls of a function with a side effect."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def __call__(self, value: Any, *more: Any) -> list[Any]:
        await asyncio.sleep(0)
        self.calls.append((value, *more) if more else value)
        return ["done", value]


async def journals(queue: AnyQueue, store: RunningStore) -> list[str]:
    """Return the keys of all journals of a queue, and check the queue."""
    assert not await queue.check()
    return [key for key in await store.keys() if ":steps:" in key or key.endswith(":stepped")]


async def run_twice(queue: AnyQueue, steps: Handler, **options: Any) -> AnyJob:
    """Run a job whose first run fails after its steps."""

    async def handler(job: AnyJob) -> Any:
        result = await steps(job)
        if job.attempts_made == 0:
            raise ValueError("again")
        return result

    job = await queue.add("n", attempts=2, **options)
    async with worker_of(queue, handler):
        await job.result(10)
    return job


@pytest.mark.everywhere
@pytest.mark.parametrize("key", [None, "customer-1"])
async def test_a_step_runs_once(queue: AnyQueue, key: str | None) -> None:
    effect = Effects()
    results: list[Any] = []

    async def steps(job: AnyJob) -> None:
        results.append([await job.step("charge", effect, cents) for cents in (100, 250, 100)])

    await run_twice(queue, steps, key=key)
    assert effect.calls == [100, 250, 100]
    assert results == [[["done", 100], ["done", 250], ["done", 100]]] * 2
    assert not await queue.check()


async def test_the_order_of_steps_does_not_matter(queue: AnyQueue) -> None:
    effect = Effects()
    orders = iter([[1, 2, 3, 3], [3, 2, 1, 4, 3]])

    async def steps(job: AnyJob) -> Any:
        return await asyncio.gather(*(job.step("charge", effect, cents) for cents in next(orders)))

    job = await run_twice(queue, steps)
    assert effect.calls == [1, 2, 3, 3, 4]
    assert await job.result() == [["done", cents] for cents in (3, 2, 1, 4, 3)]


async def test_a_failed_step_runs_again(queue: AnyQueue) -> None:
    effect = Effects()
    failing = iter([True, False])

    async def fragile(cents: int) -> Any:
        await effect(cents)
        if next(failing):
            raise ConnectionError("card terminal")

    async def handler(job: AnyJob) -> None:
        await job.step("before", effect, "x")
        await job.step("charge", fragile, 5)

    job = await queue.add("n", attempts=2)
    async with worker_of(queue, handler):
        await job.result(10)
    assert effect.calls == ["x", 5, 5]


async def test_a_repeated_call_after_a_timeout_takes_the_place_of_the_first(queue: AnyQueue) -> None:
    effect = Effects()

    async def slow_at_first(cents: int) -> Any:
        await effect(cents)
        if len(effect.calls) == 1:
            await asyncio.Event().wait()
        return len(effect.calls)

    async def steps(job: AnyJob) -> Any:
        while True:
            try:
                # Only the first call has a time limit that it can exceed.
                async with asyncio.timeout(PATIENCE if effect.calls else 0.05):
                    return await job.step("charge", slow_at_first, 5)
            except TimeoutError:
                continue

    job = await run_twice(queue, steps)
    assert effect.calls == [5, 5]
    assert await job.result() == 2


async def test_a_key_identifies_a_step(queue: AnyQueue) -> None:
    effect = Effects()
    attempts = iter(range(10))

    async def steps(job: AnyJob) -> Any:
        number = next(attempts)
        together = [job.step("charge", effect, number, object(), key="a") for _ in range(3)]
        return [*await asyncio.gather(*together), await job.step("charge", effect, number, key="b")]

    job = await run_twice(queue, steps)
    assert len(effect.calls) == 2
    assert await job.result() == [["done", 0]] * 4
    assert [(step.key, step.arguments) for step in await job.get_steps()] == [("a", None), ("b", [[0], {}])]


async def test_plain_functions_run_in_a_thread(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> Any:
        return await job.step("add", _add, 1, b=2)

    job = await queue.add("n")
    async with worker_of(queue, handler):
        assert await job.result(10) == [3, False]
    [step] = await job.get_steps()
    assert (step.name, step.status, step.arguments, step.result) == ("add", "completed", [[1], {"b": 2}], [3, False])
    assert (step.run, step.key, step.error, step.code) == (1, None, None, "")


def _add(a: int, b: int) -> list[Any]:
    return [a + b, _has_loop()]


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _double(number: int) -> int:
    return number * 2


async def test_a_handler_in_a_thread_runs_steps(queue: AnyQueue) -> None:
    def handler(job: AnyJob) -> Any:
        return [job.sync.step("double", _double, number) for number in range(3)]

    job = await queue.add("n")
    async with worker_of(queue, handler):
        assert await job.result(10) == [0, 2, 4]
    assert len(await asyncio.to_thread(job.sync.get_steps)) == 3


async def test_each_run_gets_the_stored_form_of_a_result(queue: AnyQueue) -> None:
    results: list[Any] = []

    async def pair() -> tuple[int, int]:
        return 1, 2

    async def steps(job: AnyJob) -> None:
        results.append(await job.step("pair", pair))

    await run_twice(queue, steps)
    assert results == [[1, 2], [1, 2]]


async def test_a_queue_without_steps_has_no_journal(queue: AnyQueue, store: RunningStore) -> None:
    async def handler(job: AnyJob) -> None:
        await job.log("no step")

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await job.result(10)
    assert not await journals(queue, store)
    assert await job.get_steps() == []


@pytest.mark.everywhere
async def test_the_steps_of_a_run_that_lost_its_job_are_refused(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add("n")
    zombie, other = FakeWorker(queue, store), FakeWorker(queue, store)
    [old] = await zombie.claim()
    assert await zombie.record_step(old, "a", b"1") == "ok"
    await zombie.vanish(old)
    await other.sweep()
    [new] = await other.claim()
    assert await zombie.record_step(old, "b", b"2") == "stale"
    assert await other.record_step(new, "c", b"3") == "ok"
    assert await other.settle(new) is None
    assert await other.record_step(new, "d", b"4") == "stale"
    assert await other.read_steps(new) == ({"a": b"1", "c": b"3"}, 0)


async def test_a_run_without_its_lease_gets_an_error(queue: AnyQueue) -> None:
    refused: list[Exception] = []
    running = asyncio.Event()

    async def handler(job: AnyJob) -> None:
        running.set()
        with suppress(asyncio.CancelledError):  # the removal stops the run
            await asyncio.Event().wait()
        try:
            await job.step("late", Effects(), 1)
        except Exception as error:
            refused.append(error)
            raise

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await soon(running.wait())
        await job.remove()
        await until(lambda: bool(refused))
    assert isinstance(refused[0], JobNotFound | LeaseLost)


async def test_only_a_handler_can_run_steps(queue: AnyQueue) -> None:
    job = await queue.add("n")
    with pytest.raises(JobStateError, match="in its handler"):
        await job.step("x", Effects(), 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", Effects(), 1), ValueError),
        (("a\x1f", Effects(), 1), ValueError),
        ((7, Effects(), 1), TypeError),
        (("a", Effects(), {1}), SerializationError),
        (("a", lambda: "x" * 2_000_000), PayloadTooLarge),
        (("a", lambda: {1}), SerializationError),
    ],
)
async def test_a_step_that_cannot_be_recorded_raises(
    queue: AnyQueue, store: RunningStore, arguments: Sequence[Any], error: type[Exception]
) -> None:
    async def handler(job: AnyJob) -> None:
        with pytest.raises(error):
            await job.step(*arguments)

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await job.result(10)
    assert not await journals(queue, store)


async def test_the_number_of_steps_is_limited(queue: AnyQueue) -> None:
    effect = Effects()

    async def handler(job: AnyJob) -> None:
        for number in range(4):
            await job.step("s", effect, number)

    job = await queue.add("n", attempts=2)
    async with worker_of(queue, handler, step_limits=StepLimits(max_steps=3)):
        with pytest.raises(JobFailed, match=r"it has 3 steps; .* or raise max_steps in StepLimits"):
            await job.result(10)
    assert effect.calls == [0, 1, 2]  # the fourth was refused before it ran, in both runs


async def test_the_size_of_a_journal_is_limited(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.step("small", lambda: "x")
        with pytest.raises(JournalFull, match="it would exceed 1000 bytes"):
            await job.step("large", lambda: "x" * 1_000)
        await job.step("small", lambda: "x", key="again")

    job = await queue.add("n")
    async with worker_of(queue, handler, step_limits=StepLimits(max_bytes=1_000)):
        await job.result(10)
    assert len(await job.get_steps()) == 2


async def test_the_server_enforces_the_limits(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add("n")
    worker = FakeWorker(queue, store)
    [lease] = await worker.claim()
    assert await worker.record_step(lease, "a", b"12345", most_steps=1, most_bytes=6) == "ok"
    assert await worker.record_step(lease, "a", b"54321", most_steps=1, most_bytes=6) == "ok"
    assert await worker.record_step(lease, "a", b"123456", most_steps=1, most_bytes=6) == "full"
    assert await worker.record_step(lease, "b", b"", most_steps=1, most_bytes=60) == "full"
    assert await worker.read_steps(lease) == ({"a": b"54321"}, 0)
    assert not await queue.check()


def _large(number: int) -> str:
    return str(number) * 100_000


async def test_a_large_journal_is_read_in_pages(queue: AnyQueue) -> None:
    effect = Effects()

    async def steps(job: AnyJob) -> Any:
        large = [job.step("large", _large, n) for n in range(10)]
        small = [job.step("small", effect, n) for n in range(1_000)]
        return len({str(each) for each in await asyncio.gather(*large, *small)})

    job = await run_twice(queue, steps)
    assert await job.result() == 1_010
    assert sorted(effect.calls) == [*range(1_000)]
    assert not await queue.check()


async def test_steps_use_the_codecs_of_the_queue(storage: Storage, name: str, store: RunningStore) -> None:
    codecs = [Encryption({"a": generate_key()})]
    async with Queue[Any, Any](name, storage, codecs=codecs) as queue:
        job = await queue.add("n", attempts=2)
        effect = Effects()

        async def handler(job: AnyJob) -> Any:
            found = await job.step("s", effect, "secret words")
            if job.fence == 1:
                raise ValueError
            return found

        async with worker_of(queue, handler, codecs=codecs):
            assert await job.result(10) == ["done", "secret words"]
        assert effect.calls == ["secret words"]
        assert "secret words" not in str(await store.ask("HGETALL", f"glide:{{{name}}}:steps:{job.id}"))


async def test_a_released_run_leaves_its_steps_to_the_next_one(queue: AnyQueue) -> None:
    effect = Effects()
    gate = Gate()

    async def handler(job: AnyJob) -> Any:
        found = [await job.step("s", effect, 1)]
        if job.fence == 1:
            await gate(job)
        return [*found, await job.step("s", effect, 2)]

    job = await queue.add("n")
    async with worker_of(queue, handler, shutdown_timeout=0):
        await gate.running()
    async with worker_of(queue, handler):
        assert await job.result(10) == [["done", 1], ["done", 2]]
    assert effect.calls == [1, 2]


async def test_the_result_of_a_cancelled_caller_is_recorded(queue: AnyQueue) -> None:
    """The step has happened, so a timeout while it is being recorded must not lose it."""
    effect = Effects()

    async def handler(job: AnyJob) -> Any:
        async def and_cancel(task: asyncio.Task[Any], value: int) -> Any:
            found = await effect(value)
            asyncio.get_running_loop().call_soon(task.cancel)
            return found

        task: asyncio.Task[Any] = asyncio.create_task(_later(lambda: job.step("s", and_cancel, task, 1, key="k")))
        with pytest.raises(asyncio.CancelledError):
            await task
        return await job.step("s", effect, 2, key="k")

    job = await queue.add("n")
    async with worker_of(queue, handler):
        assert await job.result(10) == ["done", 1]
    assert effect.calls == [1]


async def _later(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


class _Counting(HookedStorage):
    def __init__(self) -> None:
        super().__init__("shared-step-calls")
        self.runs: list[int] = []
        """The number of runs in each call that recorded steps."""
        self.reads = 0

    @override
    async def after_call(self, function: str, reply: object) -> None:
        if function == "recordSteps":
            self.runs.append(len(cast("list[bytes]", reply)))
        self.reads += function == "readSteps"


async def test_steps_of_many_runs_share_calls_and_first_runs_do_not_read() -> None:
    effect = Effects()

    async def handler(job: AnyJob) -> None:
        for number in range(20):
            await job.step("s", effect, number)

    async with _Counting() as storage, Queue[Any, Any]("shared", storage) as queue:
        jobs = [await queue.add("n") for _ in range(50)]
        async with worker_of(queue, handler, concurrency=50):
            for job in jobs:
                await job.result(10)
    assert len(effect.calls) == 1_000
    assert sum(storage.runs) == 1_000
    assert len(storage.runs) < 200
    assert storage.reads == 0


async def test_recorded_steps_are_shown_with_their_arguments(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.step("small", Effects(), "x", 1)
        await job.step("large", len, "x" * 5_000)

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await job.result(10)
    small, large = await job.get_steps()
    assert (small.name, small.arguments, small.result) == ("small", [["x", 1], {}], ["done", "x"])
    assert (large.name, large.arguments, large.result) == ("large", None, 5_000)
    assert job.created_at is not None
    assert json.dumps([small.started_at.isoformat(), small.finished_at.isoformat()])
