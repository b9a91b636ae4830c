"""Complete tasks: added with their signature, run by a worker of the app, with typed results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from glidemq_async import (
    BatchOptions,
    GlideMQ,
    Job,
    JobFailed,
    JobNotFound,
    JobOptions,
    PayloadTooLarge,
    Queue,
    QueueClosed,
    SerializationError,
    UnrecoverableError,
    Worker,
    current_job,
)
from glidemq_async.executors import ThreadExecutor
from glidemq_async.storage import Storage

PATIENCE = 10


@dataclass
class Order:
    number: int
    placed: datetime


ORDER = Order(7, datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture
async def mq(storage: Storage, name: str) -> AsyncIterator[GlideMQ]:
    async with GlideMQ(storage, queue=name) as opened:
        yield opened


async def test_a_task_is_added_checked_run_and_returns(mq: GlideMQ) -> None:
    @mq.task
    async def greet(name: str, *, mark: str = "!") -> str:
        return f"hello {name}{mark}"

    job = await greet.add("ada", mark="?")
    assert (job.name, job.outcome, job.data) == ("greet", "added", {"a": ["ada"], "k": {"mark": "?"}})
    with pytest.raises(TypeError, match="'mrk'"):
        await greet.add("ada", mrk="?")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="argument 'name' must be str"):
        await greet.add(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert await mq.queue(greet.queue).count() == 1, "a refused call must not be sent"
    async with mq.worker():
        assert await job.result(PATIENCE) == "hello ada?"
        assert await greet.result(job.id, PATIENCE) == "hello ada?"
    assert await greet("bob") == "hello bob!"
    with pytest.raises(JobNotFound, match="nowhere"):
        await greet.result("nowhere")


async def test_a_plain_function_runs_in_a_thread_and_sees_its_job(mq: GlideMQ) -> None:
    @mq.task
    def where(a: int) -> list[Any]:
        return [a, current_job().id, threading.current_thread() is threading.main_thread()]

    assert where.executor == "thread"
    async with mq.worker(concurrency=2):
        job = await where.add(1)
        assert await job.result(PATIENCE) == [1, job.id, False]
    with pytest.raises(RuntimeError, match="no current job"):
        where(1)


async def test_dataclasses_keep_their_types(mq: GlideMQ) -> None:
    @mq.task
    async def ship(order: Order, extra: list[Order] | None = None) -> Order:
        assert isinstance(order, Order)
        assert extra is None or isinstance(extra[0], Order)
        return order

    async with mq.worker():
        job = await ship.add(ORDER, extra=[ORDER])
        assert await job.result(PATIENCE) == ORDER
        assert await ship.result(job.id) == ORDER
        await job.refresh()
        assert job.return_value == ORDER
        [again] = await ship.add_many([{"order": ORDER}])
        assert await again.result(PATIENCE) == ORDER


async def test_a_result_that_breaks_its_annotation_fails_for_good(mq: GlideMQ) -> None:
    @mq.task(attempts=5)
    async def broken() -> Order:
        return {"number": 1}  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async with mq.worker():
        job = await broken.add()
        with pytest.raises(JobFailed, match="its result must be Order"):
            await job.result(PATIENCE)
        await job.refresh()
        assert job.attempts_made == 1


async def test_options_of_app_task_and_call_win_in_this_order(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, default_options=JobOptions(attempts=2, priority=3))

    @mq.task(queue=name, attempts=4, headers={"of": "task"})
    async def work() -> None: ...

    async with mq:
        plain, bound = await work.add(), await work.options(priority=1).options(delay=60).add()
        [many] = await work.options(attempts=7).add_many([()])
        for job, attempts, priority, headers in ((plain, 4, 3, {"of": "task"}), (many, 7, 3, {"of": "task"})):
            await job.refresh()
            assert (job.options.attempts, job.priority, dict(job.headers)) == (attempts, priority, headers)
        assert (bound.priority, bound.state) == (1, "delayed")
        raw = await mq.queue(name).add("work")
        assert (raw.options.attempts, raw.priority) == (2, 3)
        assert mq.queue(name) is mq.queue(name)
        await mq.queue(name).obliterate()


async def test_add_many_checks_all_calls_before_it_sends_any(mq: GlideMQ) -> None:
    @mq.task
    async def double(n: int) -> int:
        return n * 2

    with pytest.raises(TypeError, match="argument 'n'"):
        await double.add_many([(1,), ("2",)])
    with pytest.raises(TypeError, match="each call must be a tuple"):
        await double.add_many(["ab"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    assert await mq.queue(double.queue).count() == 0
    jobs = await double.add_many([(1,), {"n": 2}, (3,)])
    await mq.run_worker(until_empty=True)
    assert [await job.result(PATIENCE) for job in jobs] == [2, 4, 6]


async def test_a_job_of_an_unknown_task_fails_after_the_grace_and_its_attempts(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name, unknown_task_grace=0)

    @mq.task
    async def known() -> None: ...

    queue = mq.queue(known.queue)
    job = await queue.add("os.system", {"a": ["true"], "k": {}}, attempts=2)
    async with mq, mq.worker():
        with pytest.raises(JobFailed, match=r"'os\.system'.* but this app has known") as caught:
            await job.result(PATIENCE)
    assert caught.value.error_type == "UnknownTaskError"
    await job.refresh()
    assert job.attempts_made == 2


@pytest.mark.parametrize("grace", [None, 60])
async def test_a_job_of_an_unknown_task_waits_for_a_newer_worker(
    storage: Storage, name: str, grace: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer = (GlideMQ(storage, queue=name, unknown_task_grace=grace) for _ in range(2))

    @older.task
    async def known() -> None: ...

    @newer.task
    async def fresh() -> str:
        return "done"

    async with older, newer:
        job, other = await fresh.add(), await fresh.add()
        async with asyncio.timeout(PATIENCE):
            # A burst does not wait for another release.
            await older.run_worker(until_empty=True)
        await job.refresh()
        assert (job.state, job.attempts_made) == ("delayed", 0)
        assert str(job.failed_reason).startswith("waits for a worker with task 'fresh'; import the module")
        warnings = [each.getMessage() for each in caplog.records if each.name.endswith("routing")]
        assert len(warnings) == 1, "there must be one warning for all jobs of a task"
        assert "this app has no task 'fresh'" in warnings[0]
        async with newer.worker():
            await other.result(PATIENCE)
            assert await job.result(PATIENCE) == "done"
        await job.refresh()
        assert job.attempts_made == 1


async def test_renamed_tasks_and_versions_run_jobs_added_under_the_old_names(mq: GlideMQ) -> None:
    @mq.task(name="resize", version=2, aliases=["shrink"])
    async def resize(path: str, width: int = 0) -> str:
        return f"{path} {width}"

    @mq.task(name="resize")
    async def resize_1(path: str) -> str:
        return f"old {path}"

    assert (resize.name, resize.version, resize_1.name) == ("resize@2", 2, "resize")
    assert mq.tasks["shrink"] is resize
    queue = mq.queue(resize.queue)
    async with mq.worker():
        results = [
            await (await queue.add(name, {"a": ["a"], "k": {}})).result(PATIENCE)
            for name in ("resize", "resize@2", "shrink")
        ]
    assert results == ["old a", "a 0", "a 0"]
    with pytest.raises(ValueError, match="the job name 'shrink' is used by two tasks"):
        mq.task(name="shrink")(resize_1.function)


async def test_data_that_is_not_a_call_fails_for_good(mq: GlideMQ) -> None:
    @mq.task(attempts=3)
    async def work(a: int) -> None: ...

    async with mq.worker():
        job = await mq.queue(work.queue).add("work", {"a": 1, "b": 2}, attempts=3)
        with pytest.raises(JobFailed, match="must be a call") as caught:
            await job.result(PATIENCE)
        assert caught.value.error_type == SerializationError.__name__


async def test_a_text_is_not_read_as_a_list_of_arguments(mq: GlideMQ) -> None:
    @mq.task
    async def twice(text: str) -> str:
        return 2 * text

    # The second task has the fast path, because its calls are stored unchanged.
    jobs = [await mq.queue(twice.queue).add("twice", {"a": args, "k": {}}) for args in (["x"], "x")]
    await mq.run_worker(until_empty=True, concurrency=1)
    assert await jobs[0].result(PATIENCE) == "xx"
    with pytest.raises(JobFailed, match="must be a call"):
        await jobs[1].result(PATIENCE)


async def test_a_job_without_data_is_a_call_without_arguments(mq: GlideMQ) -> None:
    @mq.task
    async def ping(a: int = 1) -> int:
        return a

    @mq.task
    async def convert(at: Order = ORDER) -> Order:
        return at

    async with mq.worker():
        queue = mq.queue(ping.queue)
        assert await (await queue.add("ping", None)).result(PATIENCE) == 1
        assert await convert.result((await queue.add("convert", None)).id, PATIENCE) == ORDER


async def test_errors_control_flow_and_timeouts_work_in_tasks_as_in_other_jobs(mq: GlideMQ) -> None:
    forever = asyncio.Event()

    @mq.task(timeout=0.05)
    async def stuck() -> None:
        await forever.wait()

    @mq.task(attempts=5)
    async def hopeless() -> None:
        raise UnrecoverableError("no")

    async with mq.worker():
        with pytest.raises(JobFailed, match=r"timeout of 0\.05 s"):
            await (await stuck.add()).result(PATIENCE)
        with pytest.raises(JobFailed, match="no"):
            await (await hopeless.add()).result(PATIENCE)


async def test_a_task_can_have_its_own_executor(mq: GlideMQ) -> None:
    executor = ThreadExecutor(1)
    names: list[str] = []

    @mq.task(executor=executor)
    def own() -> None:
        names.append(threading.current_thread().name)

    @mq.task
    async def other() -> None:
        names.append(threading.current_thread().name)

    await own.add()
    await mq.run_worker(until_empty=True)
    await other.add()
    await mq.run_worker(until_empty=True)
    assert names[0].startswith("glidemq-job-")
    assert names[1] == threading.main_thread().name


async def test_one_worker_serves_all_queues_until_all_are_empty(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage)
    done: list[int] = []

    @mq.task(queue=f"{name}-b")
    async def second(left: int) -> None:
        done.append(left)
        if left:
            await first.add(left - 1)

    @mq.task(queue=f"{name}-a")
    async def first(left: int) -> None:
        done.append(left)
        if left:
            await second.add(left - 1)

    async with mq:
        await first.add(5)
        worker = mq.worker(concurrency=3)
        assert [each.queue for each in worker.workers] == [f"{name}-a", f"{name}-b"]
        await worker.run(until_empty=True)
        assert done == [5, 4, 3, 2, 1, 0]
        assert [each.queue for each in mq.worker([f"{name}-b"]).workers] == [f"{name}-b"]


async def test_stop_ends_a_worker_of_the_app(mq: GlideMQ) -> None:
    started = asyncio.Event()

    @mq.task
    async def work() -> None:
        started.set()

    worker = mq.worker()
    running = asyncio.create_task(worker.run())
    job = await work.add()
    await started.wait()
    worker.stop()
    await asyncio.wait_for(running, PATIENCE)
    assert await job.get_state() == "completed"


async def test_a_plain_worker_has_a_current_job_and_a_batch_has_none(storage: Storage, name: str) -> None:
    seen: list[object] = []

    async def one(job: Job[Any, Any]) -> None:
        seen.append(current_job() is job)

    async def batch(jobs: list[Job[Any, Any]]) -> None:
        with pytest.raises(RuntimeError, match="no current job"):
            current_job()
        seen.append(len(jobs))

    async with Queue[Any, Any](name, storage) as queue:
        for processor, options in ((one, None), (batch, BatchOptions(size=2))):
            await queue.add_bulk([("a", None)] * 2)
            worker = Worker[Any, Any](name, processor, storage, concurrency=2, batch=options)
            await worker.run(until_empty=True)
    assert seen == [True, True, 2]


async def test_an_app_works_without_being_opened_and_can_be_used_again(name: str) -> None:
    mq = GlideMQ("memory://", queue=name)

    @mq.task
    async def work() -> int:
        return 1

    for _ in range(2):
        job = await work.add()
        await mq.run_worker(until_empty=True)
        # Only the worker had opened the app. An app without users closes everything.
        assert job.id == "1"
        await mq.close()
        await mq.close()
    await mq.connect()
    await mq.connect()
    async with mq:
        assert await mq.queue(name).count() == 0
    await mq.close()


async def test_arguments_may_have_any_name(mq: GlideMQ) -> None:
    @mq.task
    async def work(*, self: int, options: int, args: int, job: int, handler: int) -> int:
        return self + options + args + job + handler

    named = {"self": 1, "options": 2, "args": 3, "job": 4, "handler": 5}
    async with mq.worker():
        for job in (
            await work.add(**named),
            await work.options(attempts=2).add(**named),
            *await work.add_many([named]),
        ):
            assert await job.result(PATIENCE) == 15
    assert await work(**named) == 15


async def test_a_closed_worker_does_not_start_again(mq: GlideMQ) -> None:
    @mq.task
    async def work() -> None: ...

    worker = mq.worker()
    async with worker:
        await worker.start()
    with pytest.raises(QueueClosed, match="create a new one"):
        await worker.run()


def test_an_app_serves_several_loops_one_after_the_other(name: str) -> None:
    mq = GlideMQ("memory://", queue=name)

    @mq.task
    async def work() -> int:
        return 3

    async def main() -> list[int]:
        # Both open the app concurrently, so one of them waits for the other.
        first, second = mq.worker(), mq.worker()
        async with mq:
            await asyncio.gather(first.start(), second.start())
            results = [await job.result(PATIENCE) for job in await work.add_many([(), ()])]
            await asyncio.gather(first.close(), second.close())
        return results

    assert [asyncio.run(main()) for _ in range(2)] == [[3, 3], [3, 3]]


async def test_the_mode_and_the_payload_limit_of_an_app_apply_to_its_queues(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name, mode="keyed", payload_limit=300)

    @mq.task
    async def repeat(text: str, times: int = 1) -> str:
        return text * times

    async with mq, mq.worker():
        with pytest.raises(ValueError, match="every job needs a key="):
            await repeat.add("a")
        keyed = repeat.options(key="k")
        with pytest.raises(PayloadTooLarge):
            await keyed.add("a" * 400)
        assert await (await keyed.add("a", 3)).result(PATIENCE) == "aaa"
        with pytest.raises(JobFailed, match="limit"):
            await (await keyed.add("a", 400)).result(PATIENCE)
    async with mq, mq.worker(payload_limit=1_000):  # the worker's own limit overrides the app's
        assert len(await (await keyed.add("a", 400)).result(PATIENCE)) == 400
    with pytest.raises(ValueError, match="mode must be"):
        GlideMQ(storage, mode=cast("Any", "both"))
    with pytest.raises(TypeError, match="payload_limit must be an int"):
        GlideMQ(storage, payload_limit=cast("Any", "1 MiB"))


async def test_keywords_override_an_options_object_of_a_task(mq: GlideMQ) -> None:
    @mq.task(attempts=2)
    async def nothing() -> None: ...

    bound = nothing.options(JobOptions(priority=3, timeout=7), timeout=8)
    job = await bound.options(JobOptions(priority=4)).add()
    assert (job.options.attempts, job.priority, job.options.timeout) == (2, 4, 8)
    with pytest.raises(TypeError, match="options must be JobOptions"):
        nothing.options({"priority": 3})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_the_retry_rules_of_a_task_replace_the_rules_of_its_worker(mq: GlideMQ) -> None:
    @mq.task(attempts=3, retry_on=(KeyError,), give_up_on=ConnectionResetError)
    async def own(kind: str) -> None:
        raise {"key": KeyError, "value": ValueError, "reset": ConnectionResetError}[kind]("boom")

    @mq.task(attempts=3)
    async def of_worker(kind: str) -> None:
        raise {"key": KeyError, "value": ValueError}[kind]("boom")

    async with mq.worker(retry_on=ValueError):
        jobs = [
            *await own.add_many([("key",), ("value",), ("reset",)]),
            *await of_worker.add_many([("key",), ("value",)]),
        ]
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.result(PATIENCE)
            await job.refresh()
    assert [job.attempts_made for job in jobs] == [3, 1, 1, 1, 3]


def test_a_task_refuses_rules_that_are_not_exception_types() -> None:
    with pytest.raises(TypeError, match="retry_on must be an exception type or a tuple of them, got 'ValueError'"):
        GlideMQ("memory://").task(retry_on="ValueError")(len)  # type: ignore[arg-type]  # pyright: ignore
