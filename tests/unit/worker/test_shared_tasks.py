"""Jobs that share a task do not notice it; see the rules in worker/shared_tasks.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from glidemq_async._internal.task_scope import HAS_EAGER_TASKS, TaskScope
from glidemq_async.jobs.abort import AbortSignal
from glidemq_async.worker.runs import RELEASED, Run, Runner
from glidemq_async.worker.shared_tasks import SharedTasks
from tests.support.helpers import AnyJob, until

Body: TypeAlias = Callable[[Run], Awaitable[None]]
Sharing: TypeAlias = "Callable[[Body], AbstractAsyncContextManager[Shared]]"

_variable: ContextVar[str] = ContextVar("variable", default="unset")


class Handlers:
    """Takes the place of a Runner, and calls `body` with the run of a job."""

    completed_none = RELEASED  # any outcome

    def __init__(self, body: Body, tasks: list[asyncio.Task[Any]]) -> None:
        self._body = body
        self._tasks = tasks
        self.runs: dict[int, Run] = {}

    async def call(self, job: AnyJob) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        await self._body(self.runs[id(job)])

    def complete(self, run: Run, value: object) -> None:
        raise AssertionError("the result is None")

    async def flush(self, run: Run) -> bool:
        return True

    async def fail(self, run: Run, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError) and run.stop_reason:
            return True
        raise error


class Shared:
    """Shared tasks that run `body` as each job. `tasks` has the task of each run, in order.

    With `direct` they call the handler themselves, otherwise `_run_job` does.
    """

    def __init__(self, scope: TaskScope, body: Body, *, direct: bool) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        self.ended = 0
        self._handlers = Handlers(body, self.tasks)
        runner = cast("Runner", self._handlers) if direct else None
        self.shared = SharedTasks(scope, self._run_job, self._end_runs, runner)

    def _end_runs(self, runs: list[Run]) -> None:
        self.ended += len(runs)

    async def _run_job(self, run: Run, rest: Coroutine[Any, Any, bool] | None) -> None:
        try:
            await (self._handlers.call(run.job) if rest is None else rest)
        except asyncio.CancelledError:
            if not run.stop_reason:
                raise
        finally:
            run.task = None
            self.ended += 1

    def start(self, count: int) -> list[Run]:
        """Start runs, whose entries are their numbers."""
        jobs = [cast("AnyJob", SimpleNamespace(abort=AbortSignal(), _meter=None)) for _ in range(count)]
        runs = [Run(job, str(number), has_options=False) for number, job in enumerate(jobs)]
        self._handlers.runs |= {id(run.job): run for run in runs}
        for run in runs:
            run.begun = True
        self.shared.start(runs)
        return runs


@pytest.fixture(params=[True, False], ids=["direct", "with run_job"])
def sharing(request: pytest.FixtureRequest) -> Sharing:
    return partial(open_sharing, direct=request.param)


@asynccontextmanager
async def open_sharing(body: Body, *, direct: bool) -> AsyncGenerator[Shared]:
    """Open a scope with shared tasks. At its end, every task must end."""
    scope = TaskScope()
    await scope.open()
    host = scope._host  # pyright: ignore[reportPrivateUsage]
    assert host is not None
    shared = Shared(scope, body, direct=direct)
    yield shared
    shared.shared.close()
    scope.end()
    await asyncio.wait_for(host, 5)


async def nothing(_run: Run) -> None:
    """A handler that does not wait."""


async def test_jobs_that_do_not_wait_share_one_task(sharing: Sharing) -> None:
    async with sharing(nothing) as shared:
        for _ in range(3):
            before = len(asyncio.all_tasks())
            shared.start(100)
            await until(lambda: bool(shared.ended) and shared.ended % 100 == 0)
            assert len(asyncio.all_tasks()) <= before + 2, "one task, and the one that it has woken"
        await until(lambda: shared.ended == 300)
        assert len(set(shared.tasks)) <= 3, "at most one for each start"


async def test_a_job_that_waits_delays_no_other(sharing: Sharing) -> None:
    gate = asyncio.Event()

    async def wait(_run: Run) -> None:
        await gate.wait()

    async with sharing(wait) as shared:
        shared.start(50)
        await until(lambda: len(shared.tasks) == 50)
        assert len(set(shared.tasks)) == 50, "a job that waits keeps its task"
        gate.set()
        await until(lambda: shared.ended == 50)
        shared.start(50)
        await until(lambda: shared.ended == 100)
        assert not {*shared.tasks[50:]} & {*shared.tasks[:50]}, (
            "a library may keep state for a task of a job that waits"
        )


async def test_a_context_variable_of_a_job_is_not_seen_by_the_next_one(sharing: Sharing) -> None:
    seen: list[str] = []

    async def mark(run: Run) -> None:
        seen.append(_variable.get())
        _variable.set(run.entry)

    async with sharing(mark) as shared:
        shared.start(10)
        await until(lambda: shared.ended == 10)
    assert seen == ["unset"] * 10


class Array:
    """A value without a truth value of its comparison, like an array of numbers."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("make", [Array, list], ids=["without a truth value", "equal"])
async def test_values_of_context_variables_are_compared_by_identity(
    sharing: Sharing, make: Callable[[], object]
) -> None:
    variable: ContextVar[object] = ContextVar("value")
    first = make()
    variable.set(first)
    seen: list[bool] = []

    async def replace(_run: Run) -> None:
        seen.append(variable.get() is first)
        variable.set(make())

    async with sharing(replace) as shared:
        shared.start(3)
        await until(lambda: shared.ended == 3)
    assert seen == [True, True, True]


async def test_a_run_that_fails_after_it_has_waited_ends_its_task(sharing: Sharing) -> None:
    async def wait(run: Run) -> None:
        await asyncio.sleep(0)
        if run.entry == "0":
            run.stop("revoked")
            await asyncio.sleep(10)

    async with sharing(wait) as shared:
        shared.start(3)
        await until(lambda: shared.ended == 3)
        assert len(set(shared.tasks)) == 3


async def test_a_context_variable_that_is_reset_keeps_the_task(sharing: Sharing) -> None:
    async def mark(run: Run) -> None:
        _variable.reset(_variable.set(run.entry))

    async with sharing(mark) as shared:
        shared.start(10)
        await until(lambda: shared.ended == 10)
        assert len(set(shared.tasks)) <= 2


async def test_a_stop_in_the_last_moment_of_a_run_does_not_reach_the_next_one(sharing: Sharing) -> None:
    async def stop_first(run: Run) -> None:
        if run.entry == "0":
            run.stop("revoked")

    async with sharing(stop_first) as shared:
        shared.start(10)
        await until(lambda: shared.ended == 10)
        assert shared.tasks[0] not in shared.tasks[1:], "the stopped task has ended"


async def test_a_stop_after_the_end_of_a_run_does_not_reach_the_next_one(sharing: Sharing) -> None:
    gate = asyncio.Event()

    async def wait(_run: Run) -> None:
        await gate.wait()

    async with sharing(wait) as shared:
        gate.set()
        first = shared.start(1)[0]
        await until(lambda: shared.ended == 1)
        gate.clear()
        second = shared.start(1)[0]
        await until(lambda: len(shared.tasks) == 2)
        is_same = shared.tasks[0] is shared.tasks[1]
        assert is_same or HAS_EAGER_TASKS, "the same task, so a late stop could reach it"
        first.stop("revoked")
        gate.set()
        await until(lambda: shared.ended == 2)
        assert second.stop_reason == ""


async def test_a_job_that_cancels_itself_does_not_cancel_the_next_one(sharing: Sharing) -> None:
    async def cancel(run: Run) -> None:
        if run.entry == "0":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async with sharing(cancel) as shared:
        shared.start(10)
        await until(lambda: shared.ended == 10)


async def test_an_idle_task_that_a_former_handler_cancels_is_replaced(sharing: Sharing) -> None:
    async with sharing(nothing) as shared:
        shared.start(3)
        await until(lambda: shared.ended == 3)
        await asyncio.sleep(0)
        shared.start(3)  # wakes an idle task, which is cancelled before its step
        for task in set(shared.tasks):
            task.cancel()
        await until(lambda: shared.ended == 6)
        assert len(set(shared.tasks)) > 1, "another task has run the last jobs"


async def test_a_timeout_of_a_handler_ends_with_its_job(sharing: Sharing) -> None:
    async def limited(run: Run) -> None:
        if run.entry == "0":
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(10)
            except TimeoutError:
                return
        await asyncio.sleep(0)

    async with sharing(limited) as shared:
        shared.start(3)
        await until(lambda: shared.ended == 3)
        shared.start(3)
        await until(lambda: shared.ended == 6)
    assert not any(task.cancelled() for task in shared.tasks)
