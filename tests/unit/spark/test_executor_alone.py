"""The Spark executor with a fake engine: stopped runs, abandoned runs and broken sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from glidemq_async import GlideMQ, Worker
from glidemq_async.errors import ExecutorError
from glidemq_async.spark.driver import executor as spark_executor
from glidemq_async.spark.driver.executor import SparkExecutor
from glidemq_async.spark.driver.progress import StageCount, StageProgress
from glidemq_async.spark.driver.spark_run import SparkRun
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, soon, until
from tests.unit.spark.engines import FakeEngine

pytestmark = pytest.mark.only_on("memory")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    made = FakeEngine()

    def engine_of(spark: object, *, interrupt: bool) -> FakeEngine:
        return made

    monkeypatch.setattr(spark_executor, "engine_of", engine_of)
    return made


def executor(engine: FakeEngine, **options: Any) -> SparkExecutor:
    options.setdefault("grace", 5)
    return SparkExecutor(engine.session, **options)


def worker_of(queue: AnyQueue, function: Callable[..., Any], on: SparkExecutor, **options: Any) -> Worker[Any, Any]:
    options.setdefault("shutdown_timeout", 0.1)
    return Worker(queue.name, function, queue.storage, handle_signals=False, executor=on, poll_interval=60, **options)


def acting(engine: FakeEngine) -> Callable[[object, AnyJob], None]:
    def act(spark: object, job: AnyJob) -> None:
        engine.act()

    return act


def nothing(spark: object, job: AnyJob) -> None:
    return None


async def submitted(engine: FakeEngine) -> None:
    assert await asyncio.to_thread(engine.submitted.wait, 10)


async def test_a_revoked_run_is_cancelled_in_spark(queue: AnyQueue, engine: FakeEngine) -> None:
    reasons: list[str] = []

    def work(spark: object, job: AnyJob) -> None:
        try:
            engine.act()
        finally:
            reasons.append(job.abort.reason)

    async with worker_of(queue, work, executor(engine)):
        job = await queue.add("n", attempts=3)
        await submitted(engine)
        await job.revoke()
        job = await ended(job)
    assert (job.state, job.failed_reason, job.fence, reasons) == ("failed", "revoked", 1, ["revoked"])


async def test_a_run_that_ignores_cancellations_is_cancelled_repeatedly(queue: AnyQueue, engine: FakeEngine) -> None:
    def work(spark: object, job: AnyJob) -> str:
        for _ in range(3):
            try:
                engine.act()
            except RuntimeError:
                continue
        return "I am done"

    async with worker_of(queue, work, executor(engine)):
        job = await queue.add("n")
        await submitted(engine)
        await job.revoke()
        job = await ended(job)
    assert (job.state, job.failed_reason) == ("failed", "revoked")
    assert engine.cancels >= 3


async def test_work_that_is_submitted_after_the_cancellation_is_cancelled_too(
    queue: AnyQueue, engine: FakeEngine
) -> None:
    begun = threading.Event()

    def work(spark: object, job: AnyJob) -> None:
        begun.set()
        assert job.abort.wait_in_thread(10)
        while not engine.cancels:
            pass
        engine.act()

    async with worker_of(queue, work, executor(engine)):
        job = await queue.add("n")
        assert await asyncio.to_thread(begun.wait, 10)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    assert engine.cancels >= 2


async def test_a_timeout_cancels_and_counts_as_a_failure(queue: AnyQueue, engine: FakeEngine) -> None:
    async with worker_of(queue, acting(engine), executor(engine)):
        job = await ended(await queue.add("n", attempts=2, timeout=0.1))
    assert (job.state, job.fence) == ("failed", 2)
    assert (job.failed_reason or "").startswith("TimeoutError: the run took longer than its timeout of 0.1 s")


async def test_a_worker_that_stops_releases_the_job(queue: AnyQueue, engine: FakeEngine) -> None:
    def work(spark: object, job: AnyJob) -> str:
        try:
            engine.act()
        except RuntimeError:
            return "swallowed"
        return "never"

    async with worker_of(queue, work, executor(engine)):
        job = await queue.add("n")
        await submitted(engine)
    await job.refresh()
    assert (job.state, job.attempts_made) == ("waiting", 0)
    assert engine.cancels


async def test_a_run_that_lost_its_job_is_cancelled(queue: AnyQueue, engine: FakeEngine) -> None:
    reasons: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def work(spark: object, job: AnyJob) -> None:
        try:
            engine.act()
        finally:
            loop.call_soon_threadsafe(reasons.put_nowait, job.abort.reason)

    async with worker_of(queue, work, executor(engine)):
        job = await queue.add("n")
        await submitted(engine)
        await job.remove()
        assert await soon(reasons.get()) == "lease lost"


async def test_a_stopped_run_keeps_its_slot_until_no_executor_works_for_it(queue: AnyQueue, engine: FakeEngine) -> None:
    engine.counts = [StageCount(1, 0, 4, 2)]
    worker = worker_of(queue, acting(engine), executor(engine, progress_interval=None))
    async with worker:
        job = await queue.add("n")
        await submitted(engine)
        await job.revoke()
        await until(lambda: engine.cancels > 0)
        await asyncio.sleep(0.3)
        assert worker.running == 1
        engine.counts = [StageCount(1, 0, 4, 0)]
        assert (await ended(job)).failed_reason == "revoked"


async def test_a_function_that_does_not_end_is_abandoned_and_keeps_its_slot(
    queue: AnyQueue, engine: FakeEngine
) -> None:
    release, begun = threading.Event(), threading.Event()
    on = executor(engine, grace=0.2, threads=1)

    def work(spark: object, job: AnyJob) -> object:
        if job.data:
            return job.data
        begun.set()
        return release.wait(20)

    async with worker_of(queue, work, on, concurrency=2):
        job = await queue.add("n")
        assert await asyncio.to_thread(begun.wait, 10)
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
        assert on.occupied == 1
        cancels = engine.cancels
        await until(lambda: engine.cancels > cancels)
        second = await queue.add("n", "next")
        release.set()
        assert await soon(second.result(10)) == "next"
    assert on.occupied == 0


async def test_a_broken_session_stops_the_worker_and_fails_the_job_for_another_attempt(
    queue: AnyQueue, engine: FakeEngine
) -> None:
    def work(spark: object, job: AnyJob) -> None:
        engine.gone = True
        raise ConnectionError("the JVM does not answer")

    worker = worker_of(queue, work, executor(engine))
    errors = Heard(worker, "error")
    job = await queue.add("n", attempts=2)
    with pytest.raises(ExecutorError, match="has gone"):
        await soon(worker.run())
    assert isinstance((await errors.next())[0], ExecutorError)
    await job.refresh()
    assert (job.state, job.attempts_made) == ("waiting", 1)


async def test_a_job_that_a_broken_session_cannot_begin_costs_no_attempt(queue: AnyQueue, engine: FakeEngine) -> None:
    worker = worker_of(queue, nothing, executor(engine))
    async with worker:
        engine.gone = True
        job = await queue.add("n")
        await until(lambda: worker.broken is not None)
    await job.refresh()
    assert (job.state, job.attempts_made) == ("delayed", 0)


async def test_a_worker_does_not_start_on_a_session_that_was_stopped(queue: AnyQueue, engine: FakeEngine) -> None:
    engine.gone = True
    with pytest.raises(ExecutorError, match="has gone"):
        await worker_of(queue, nothing, executor(engine)).run()


async def test_a_broken_session_stops_a_worker_of_an_app_too(queue: AnyQueue, engine: FakeEngine) -> None:
    mq = GlideMQ(queue.storage)
    on = executor(engine)

    @mq.task(queue=queue.name, executor=on)
    def breaks() -> None:
        engine.gone = True
        raise ConnectionError("gone")

    async with mq:
        await breaks.add()
        with pytest.raises(ExecutorError, match="has gone"):
            await soon(mq.worker(handle_signals=False).run())


async def test_exceptions_that_no_future_can_carry_are_wrapped(queue: AnyQueue, engine: FakeEngine) -> None:
    def work(spark: object, job: AnyJob) -> None:
        raise StopIteration

    async with worker_of(queue, work, executor(engine)):
        job = await ended(await queue.add("n"))
    assert "StopIteration" in (job.failed_reason or "")


async def test_a_handler_with_wrong_parameters_keeps_no_slot(queue: AnyQueue, engine: FakeEngine) -> None:
    def wrong(one: object, two: object, three: object) -> None: ...

    on = executor(engine, threads=1)
    async with worker_of(queue, wrong, on):
        for _ in range(2):
            job = await ended(await queue.add("n"))
            assert "must be a function of (spark, job)" in (job.failed_reason or "")


async def test_a_thread_that_cannot_start_keeps_no_slot(
    queue: AnyQueue, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SparkRun, "start", fail)
    async with worker_of(queue, nothing, executor(engine, threads=1)):
        for _ in range(2):
            job = await ended(await queue.add("n"))
            assert "can't start new thread" in (job.failed_reason or "")


def test_progress_never_decreases() -> None:
    progress = StageProgress()
    assert progress.fold([]) is None
    assert progress.fold([StageCount(1, 3, 4, 1)]) == {"done": 3, "known": 4, "stages": 1, "percent": 75}
    assert progress.fold([StageCount(1, 3, 4, 1)]) is None
    # A stage that Spark has forgotten or repeats, and a new one.
    found = progress.fold([StageCount(1, 1, 4, 2), StageCount(2, 0, 8, 0)])
    assert found == {"done": 3, "known": 12, "stages": 2, "percent": 75}
    assert progress.fold([StageCount(2, 8, 8, 0)]) == {"done": 11, "known": 12, "stages": 2, "percent": 91}
