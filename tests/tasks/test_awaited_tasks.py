"""`add_and_wait` of tasks: one call that adds a job and returns its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from glidemq_async import GlideMQ, Job, JobFailed, JobOptions, Middleware, ResultTimeout, SerializationError
from glidemq_async.storage import Storage
from glidemq_async.tasks.task import AnyTask
from tests.support.helpers import soon

PATIENCE = 10


@dataclass
class Sum:
    total: int


def key_of(a: int, b: int = 1) -> str:
    return f"k{a}"


class Recorder(Middleware):
    """Records the adds."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        self.log.append(f"before {task.name} {options.key}")
        return options

    async def after_add(self, task: AnyTask, job: Job[Any, Any]) -> None:
        self.log.append(f"after {task.name} {job.outcome}")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def mq(storage: Storage, name: str, recorder: Recorder) -> AsyncIterator[GlideMQ]:
    async with GlideMQ(storage, queue=name, middleware=[recorder]) as opened:
        yield opened


async def test_a_call_is_checked_added_and_returns_the_typed_result(mq: GlideMQ, recorder: Recorder) -> None:
    # The record is gone when the job has ended, so only a caller that is registered with the add gets the result.
    @mq.task(keep_completed=False, key=key_of)
    async def add(a: int, *, b: int = 1) -> Sum:
        return Sum(a + b)

    async with mq.worker():
        assert await soon(add.add_and_wait(1, b=5), PATIENCE) == Sum(6)
        assert await soon(add.options(key="other").add_and_wait(2), PATIENCE) == Sum(3)
        waiting = add.options(key=None).wait_options(wait_timeout=PATIENCE)
        assert await waiting.add_and_wait(3) == Sum(4)
    assert recorder.log[::2] == ["before add k1", "before add other", "before add None"]
    assert recorder.log[1::2] == ["after add added"] * 3
    with pytest.raises(TypeError, match="'c'"):
        await add.add_and_wait(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert len(recorder.log) == 6, "a refused call must not be sent"


async def test_a_failure_is_raised(mq: GlideMQ) -> None:
    @mq.task
    async def fail() -> None:
        raise ValueError("broken")

    async with mq.worker():
        with pytest.raises(JobFailed, match="broken"):
            await fail.wait_options(wait_timeout=PATIENCE).add_and_wait()


async def test_a_value_that_cannot_be_stored_names_the_argument(mq: GlideMQ) -> None:
    @mq.task
    async def take(value: Any) -> None: ...

    with pytest.raises(SerializationError, match="argument 'value'"):
        await take.add_and_wait(object())


async def test_the_job_of_a_caller_that_runs_out_of_time_is_revoked(mq: GlideMQ) -> None:
    @mq.task
    async def unused() -> None: ...

    with pytest.raises(ResultTimeout, match=r"'unused'.*0\.02 s"):
        await unused.options(job_id="left").wait_options(wait_timeout=0.02).add_and_wait()
    with pytest.raises(ResultTimeout, match="it continues"):
        await unused.wait_options(wait_timeout=0.02, revoke_if_abandoned=False).add_and_wait()
    left = await mq.queue(unused.queue).get_job("left")
    assert left is not None
    with pytest.raises(JobFailed, match=r"its caller stopped waiting|expired"):
        await left.result(PATIENCE)
    assert await mq.queue(unused.queue).count() == 1


async def test_the_blocking_form(mq: GlideMQ) -> None:
    @mq.task
    async def double(number: int) -> int:
        return 2 * number

    async with mq.worker():
        assert await asyncio.to_thread(double.sync.add_and_wait, 4) == 8
        assert await asyncio.to_thread(double.options(priority=1).sync.add_and_wait, 5) == 10
        waiting = double.wait_options(wait_timeout=PATIENCE)
        assert await asyncio.to_thread(waiting.sync.add_and_wait, 6) == 12


async def test_a_bad_option_of_the_wait_is_refused(mq: GlideMQ) -> None:
    @mq.task
    async def task(number: int = 0) -> int:
        return number

    with pytest.raises(ValueError, match="wait_timeout"):
        task.wait_options(wait_timeout=-1)
    with pytest.raises(TypeError, match=r"wait_timeout.*wait_options\(wait_timeout=\.\.\.\)"):
        await task.add_and_wait(wait_timeout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match=r"wait_timeout.*wait_options\(wait_timeout=\.\.\.\)"):
        task.options(wait_timeout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
