"""Middleware: the order of its hooks, and the effect of their exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import pytest

from glidemq_async import Depends, GlideMQ, Job, JobFailed, JobOptions, Middleware
from glidemq_async.options.job_options import merge
from glidemq_async.storage import Storage
from glidemq_async.tasks.task import AnyTask

PATIENCE = 10

user: ContextVar[str] = ContextVar("user", default="nobody")


class Recorder(Middleware):
    """Records the hooks. It raises where the test asks for it."""

    def __init__(self, name: str, log: list[str], broken: str = "") -> None:
        self.name = name
        self.log = log
        self.broken = broken

    def note(self, hook: str) -> None:
        self.log.append(f"{self.name} {hook}")
        if self.broken == hook:
            raise ValueError(f"{self.name} {hook} broken")

    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        self.note("before_add")
        return merge(options, {"headers": {**options.headers, self.name: task.name}})

    async def after_add(self, task: AnyTask, job: Job[Any, Any]) -> None:
        self.note(f"after_add {job.outcome}")

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        self.note("before_run")
        user.set(job.headers.get(self.name, "nobody"))

    async def after_run(self, task: AnyTask, job: Job[Any, Any], result: Any) -> None:
        self.note(f"after_run {result}" if self.broken != "after_run" else "after_run")

    async def on_failure(self, task: AnyTask, job: Job[Any, Any], error: BaseException) -> None:
        self.note(f"on_failure {type(error).__name__}" if self.broken != "on_failure" else "on_failure")


def made(storage: Storage, name: str, log: list[str], outer: str = "", inner: str = "") -> GlideMQ:
    mq = GlideMQ(storage, queue=name, middleware=[Recorder("outer", log, outer)])
    mq.add_middleware(Recorder("inner", log, inner))
    return mq


async def test_hooks_are_called_in_the_documented_order(storage: Storage, name: str) -> None:
    log: list[str] = []
    mq = made(storage, name, log)

    async def session() -> AsyncGenerator[None]:
        log.append("open")
        yield
        log.append("close")

    @mq.task
    def work(_s: None = Depends(session)) -> str:
        log.append("work")
        return user.get()

    async with mq:
        job = await work.add()
        assert dict(job.options.headers) == {"outer": "work", "inner": "work"}
        adding = ["outer before_add", "inner before_add", "inner after_add added", "outer after_add added"]
        assert log == adding
        await mq.run_worker(until_empty=True)
        assert await job.result(PATIENCE) == "work", "a context variable reaches the thread"
        ran = ["outer before_run", "inner before_run", "open", "work", "close"]
        assert log[len(adding) :] == [*ran, "inner after_run work", "outer after_run work"]
        log.clear()
        await work.add_many([(), ()])
        assert log == [*adding[:2] * 2, *adding[2:] * 2]
        await mq.queue(name).obliterate()


async def test_hooks_of_a_failed_run_are_called_in_reverse(storage: Storage, name: str) -> None:
    log: list[str] = []
    mq = made(storage, name, log)

    @mq.task(attempts=2)
    async def work() -> None:
        raise KeyError("x")

    async with mq:
        await work.add()
        log.clear()
        await mq.run_worker(until_empty=True)
    once = ["outer before_run", "inner before_run", "inner on_failure KeyError", "outer on_failure KeyError"]
    assert log == once * 2


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("before_run", ["outer before_run", "inner before_run", "outer on_failure ValueError"]),
        (
            "after_run",
            [
                "outer before_run",
                "inner before_run",
                "inner after_run",
                "inner on_failure ValueError",
                "outer on_failure ValueError",
            ],
        ),
    ],
)
async def test_an_exception_in_a_hook_of_a_run_fails_it(
    storage: Storage, name: str, broken: str, expected: list[str]
) -> None:
    log: list[str] = []
    mq = made(storage, name, log, inner=broken)

    @mq.task
    async def work() -> None: ...

    async with mq:
        job = await work.add()
        log.clear()
        await mq.run_worker(until_empty=True)
        with pytest.raises(JobFailed, match=f"inner {broken} broken"):
            await job.result(PATIENCE)
    assert log == expected


async def test_exceptions_in_on_failure_and_after_add_are_only_logged(
    storage: Storage, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    mq = made(storage, name, log, outer="after_add added", inner="on_failure")

    @mq.task
    async def work() -> None:
        raise KeyError("x")

    async with mq:
        job = await work.add()
        await mq.run_worker(until_empty=True)
        with pytest.raises(JobFailed, match="KeyError"):
            await job.result(PATIENCE)
    assert log[-1] == "outer on_failure KeyError"
    assert [record.message for record in caplog.records if "Recorder" in record.message] == [
        f"Recorder.after_add raised an exception; job {job.id} of task work is stored",
        f"Recorder.on_failure raised an exception for job {job.id} of task work",
    ]


async def test_an_add_that_a_hook_refuses_adds_nothing(storage: Storage, name: str) -> None:
    mq = made(storage, name, [], inner="before_add")

    @mq.task
    async def work() -> None: ...

    async with mq:
        with pytest.raises(ValueError, match="inner before_add broken"):
            await work.add()
        assert await mq.queue(name).count() == 0


class Forgetful(Middleware):
    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


async def test_before_add_must_return_options(storage: Storage, name: str) -> None:
    mq = GlideMQ(storage, queue=name, middleware=[Forgetful()])

    @mq.task
    async def work() -> None: ...

    async with mq:
        with pytest.raises(TypeError, match=r"Forgetful.before_add must return JobOptions"):
            await work.add()
    with pytest.raises(TypeError, match="instances of Middleware"):
        mq.add_middleware(Recorder)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_hooks_are_called_for_an_interrupted_run(storage: Storage, name: str) -> None:
    log: list[str] = []
    mq = made(storage, name, log)
    began = asyncio.Event()

    @mq.task
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async with mq, mq.worker():
        job = await work.add()
        await began.wait()
        await job.revoke()
        with pytest.raises(JobFailed, match="revoked"):
            await job.result(PATIENCE)
    assert log[-2:] == ["inner on_failure CancelledError", "outer on_failure CancelledError"]
