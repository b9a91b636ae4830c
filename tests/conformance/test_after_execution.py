"""`after_execution`: the function that a worker calls between a job's last run and the storing of its outcome."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from glidemq_async import BatchOptions, Execution, Job, JobFailed, RetryLater, Worker
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, soon, worker_of


async def fail(job: AnyJob) -> None:
    raise ValueError(f"no {job.data}")


class Seen:
    """A plain function that notes its arguments."""

    def __init__(self) -> None:
        self.states: list[tuple[Any, str, Any, str]] = []

    def __call__(self, execution: Execution) -> None:
        text = type(execution.error).__name__ if execution.error else ""
        self.states.append((execution.job.data, execution.state, execution.result, text))


@pytest.mark.everywhere
async def test_after_execution_may_replace_the_result(queue: AnyQueue) -> None:
    async def review(execution: Execution) -> None:
        await asyncio.sleep(0)
        execution.result = {"was": execution.result}

    async with worker_of(queue, echo, after_execution=review) as worker:
        completed = Heard(worker, "completed")
        assert await queue.add_and_wait("n", 1, wait_timeout=10) == {"was": 1}
        job, emitted = await completed.next()
        assert (emitted, job.return_value) == ({"was": 1}, {"was": 1})
    assert (await ended(job)).return_value == {"was": 1}


async def test_after_execution_may_replace_the_message_of_a_failure(queue: AnyQueue) -> None:
    def review(execution: Execution) -> None:
        assert isinstance(execution.error, ValueError)
        assert execution.message == "no secret"
        execution.message = "no ***"

    async with worker_of(queue, fail, after_execution=review) as worker:
        failed = Heard(worker, "failed")
        job = await queue.add("n", "secret")
        with pytest.raises(JobFailed, match=r"no \*\*\*") as caught:
            await job.result(10)
        assert caught.value.error_type == "ValueError"
        assert str((await failed.next())[1]) == "no secret"
    await job.refresh()
    assert job.failed_reason == "ValueError: no ***"
    assert "secret" not in (job.stacktrace or "")
    assert "in fail" in (job.stacktrace or "")


async def test_after_execution_may_replace_the_traceback(queue: AnyQueue) -> None:
    def review(execution: Execution) -> None:
        execution.traceback = "see the incident log"

    job = await queue.add("n", 1)
    await worker_of(queue, fail, after_execution=review).run(until_empty=True)
    await job.refresh()
    assert (job.stacktrace, job.failed_reason) == ("see the incident log", "ValueError: no 1")


async def test_after_execution_is_called_only_for_final_outcomes(queue: AnyQueue) -> None:
    async def process(job: AnyJob) -> Any:
        if job.data == "later" and job.fence == 1:
            raise RetryLater(0)
        if job.data == "flaky" and not job.attempts_made:
            raise ConnectionError
        if job.data == "fails":
            raise ValueError
        return job.data

    seen = Seen()
    for data in ("good", "later", "flaky", "fails"):
        await queue.add("n", data, attempts=2)
    await worker_of(queue, process, after_execution=seen).run(until_empty=True)
    assert sorted(seen.states, key=str) == [
        ("fails", "failed", None, "ValueError"),
        ("flaky", "completed", "flaky", ""),
        ("good", "completed", "good", ""),
        ("later", "completed", "later", ""),
    ]


async def test_after_execution_is_called_before_the_outcome_is_stored(queue: AnyQueue) -> None:
    async def review(execution: Execution) -> None:
        stored = await queue.get_job(execution.job.id)
        states.append(stored.state if stored else "none")

    states: list[str] = []
    job = await queue.add("n", 1)
    await worker_of(queue, echo, after_execution=review).run(until_empty=True)
    assert (states, await job.get_state()) == (["active"], "completed")


async def test_after_execution_can_read_and_set_the_result_ttl(queue: AnyQueue) -> None:
    def review(execution: Execution) -> None:
        seen.append(execution.result_ttl)
        execution.result_ttl = {"short": 0.001, "ordinary": None}.get(execution.job.data, execution.result_ttl)

    seen: list[Any] = []
    jobs = {data: await queue.add("n", data, result_ttl=600) for data in ("same", "short", "ordinary")}
    jobs["plain"] = await queue.add("n", "plain")
    await worker_of(queue, echo, after_execution=review).run(until_empty=True)
    assert seen == [600, 600, 600, None]
    await asyncio.sleep(0.01)
    found = {data: await queue.get_job(job.id) is not None for data, job in jobs.items()}
    assert found == {"same": True, "short": False, "ordinary": True, "plain": True}


async def test_after_execution_may_change_the_ttl_of_a_failure(queue: AnyQueue) -> None:
    def review(execution: Execution) -> None:
        execution.result_ttl = 600

    job = await queue.add("n", 1, keep_failed=False)
    await worker_of(queue, fail, after_execution=review).run(until_empty=True)
    assert (await ended(job)).state == "failed"


def _raises(execution: Execution) -> None:
    execution.result, execution.message = "changed", "changed"
    raise LookupError("broken")


async def _raises_later(execution: Execution) -> None:
    await asyncio.sleep(0)
    _raises(execution)


def _exits(execution: Execution) -> None:
    execution.result = "changed"
    raise SystemExit(1)


async def _cancels_itself(execution: Execution) -> None:
    execution.result = "changed"
    raise asyncio.CancelledError


def _bad_ttl(execution: Execution) -> None:
    execution.result, execution.message = "changed", "changed"
    execution.result_ttl = -1


def _ttl_of_a_wrong_type(execution: Execution) -> None:
    execution.result, execution.message = "changed", "changed"
    execution.result_ttl = cast("float", "1h")


def _unstorable(execution: Execution) -> None:
    execution.result, execution.message = object(), cast("str", object())


@pytest.mark.parametrize(
    "broken",
    [_raises, _raises_later, _exits, _cancels_itself, _bad_ttl, _ttl_of_a_wrong_type, _unstorable],
)
async def test_an_exception_in_after_execution_is_reported_and_changes_nothing(queue: AnyQueue, broken: Any) -> None:
    async with worker_of(queue, echo, after_execution=broken) as worker:
        errors = Heard(worker, "error")
        job = await queue.add("n", "value", result_ttl=600)
        assert await job.result(10) == "value"
        [error] = await errors.next()
        assert isinstance(error, Exception)
        assert f"after_execution of job {job.id}" in str(getattr(error, "__notes__", ""))
        assert await (await queue.add("n", "next")).result(10) == "next"


@pytest.mark.parametrize("broken", [_raises, _bad_ttl, _unstorable])
async def test_an_exception_in_after_execution_leaves_a_failure_unchanged(queue: AnyQueue, broken: Any) -> None:
    async with worker_of(queue, fail, after_execution=broken) as worker:
        errors = Heard(worker, "error")
        job = await queue.add("n", 1)
        with pytest.raises(JobFailed, match="no 1"):
            await job.result(10)
        await errors.next()


async def test_after_execution_is_not_called_for_a_revoked_job(queue: AnyQueue) -> None:
    seen = Seen()
    gate = Gate()
    async with worker_of(queue, gate, after_execution=seen):
        job = await queue.add("n", 1)
        await gate.running()
        await job.revoke()
        assert (await ended(job)).failed_reason == "revoked"
    assert seen.states == []


async def test_an_outcome_is_not_lost_when_the_worker_stops_during_the_call(queue: AnyQueue) -> None:
    reviewing = asyncio.Event()

    async def review(execution: Execution) -> None:
        execution.result = "changed"
        reviewing.set()
        await asyncio.Event().wait()

    async with worker_of(queue, echo, after_execution=review, shutdown_timeout=0):
        job = await queue.add("n", "value")
        await soon(reviewing.wait())
    assert await job.result(10) == "value"


async def test_after_execution_gets_a_result_that_cannot_be_stored_as_a_failure(queue: AnyQueue) -> None:
    async def process(job: AnyJob) -> object:
        return object()

    seen = Seen()
    job = await queue.add("n", 1)
    await worker_of(queue, process, after_execution=seen).run(until_empty=True)
    assert seen.states == [(1, "failed", None, "SerializationError")]
    assert (await ended(job)).state == "failed"


async def test_each_job_of_a_batch_is_reviewed(queue: AnyQueue) -> None:
    async def process(jobs: list[Job[Any, Any]]) -> list[Any]:
        return [ValueError("odd") if job.data % 2 else job.data for job in jobs]

    def review(execution: Execution) -> None:
        if execution.error is None:
            execution.result = execution.result * 10
        else:
            execution.message = "it is odd"

    jobs = await queue.add_bulk([("n", n) for n in range(4)])
    worker = worker_of(queue, cast("Any", process), after_execution=review, batch=BatchOptions(size=4))
    await worker.run(until_empty=True)
    for job in jobs:
        await ended(job)
    assert [job.return_value for job in jobs] == [0, None, 20, None]
    assert [job.failed_reason for job in jobs] == [None, "ValueError: it is odd"] * 2


@pytest.mark.only_on("memory")
async def test_a_value_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match="after_execution must be a function of one Execution, got 5"):
        Worker("q", echo, "memory://", after_execution=cast("Any", 5))
