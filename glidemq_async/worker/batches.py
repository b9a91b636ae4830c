"""Batches: collect claimed jobs and pass them to the processor as one list. Each job has a separate outcome.

A Batcher takes the place of the executor, so claims, leases, retries and settling do not depend on batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias, cast

from glidemq_async._internal.generics import Data, Result
from glidemq_async._internal.task_scope import TaskScope
from glidemq_async.durations import to_ms
from glidemq_async.executors.protocol import ChecksHandlers, Executor, Handler, when_ended
from glidemq_async.executors.sharing import ExecutorUse
from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.context import set_current_job
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import entry_of
from glidemq_async.options.batch import BatchOptions

Processor: TypeAlias = (
    Callable[[Job[Data, Result]], Awaitable[Result] | Result]
    | Callable[[list[Job[Data, Result]]], Awaitable[Sequence[Result | BaseException] | None]]
    | Callable[[list[Job[Data, Result]]], Sequence[Result | BaseException] | None]
)
"""A function of one job, or with `batch` of a list of jobs. It is a coroutine function or a plain one."""


def batcher_of(
    batch: BatchOptions | None,
    processor: Any,
    executor: Executor,
    tasks: TaskScope,
    report_broken: Callable[[Exception], None],
) -> Batcher | None:
    """Return the batcher for `processor`, or None without `batch`. Raises TypeError unless `batch` is a BatchOptions,
    and for an executor that cannot run batches."""
    if batch is None:
        return None
    if not isinstance(batch, BatchOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"batch must be BatchOptions, got {batch!r}")
    if isinstance(executor, ChecksHandlers):
        raise TypeError(
            f'{type(executor).__name__} runs one job at a time; leave out batch=, or use executor="inline" or "thread"'
        )
    return Batcher(processor, executor, batch, tasks, report_broken)


_UNANSWERED: Final = object()


class _Member:
    """One job of a batch, and its outcome."""

    __slots__ = ("answer", "batch", "future", "job", "late", "timeout", "timer")

    def __init__(self, batch: _Batch, job: Job[Any, Any], timeout: float | None) -> None:
        self.batch: _Batch | None = batch
        self.job = job
        self.timeout = timeout
        self.timer: asyncio.TimerHandle | None = None
        self.late: TimeoutError | None = None
        self.answer: object = _UNANSWERED
        self.future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: object) -> None:
        """Take the entry for this job from the processor's return value."""
        if self.timer is not None:
            self.timer.cancel()
        if self.late is not None and isinstance(answer, asyncio.CancelledError):
            answer = self.late
        self.answer = answer
        if self.future.done():
            return
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class _Batch:
    """The members of one call. `live` counts those whose run still waits for the return value."""

    __slots__ = ("live", "members", "task")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.live = 0
        self.task: asyncio.Task[list[object]] | None = None


# A batch is one call with several runs, and each run keeps its lease, timeout, stop and outcome. So a member and the
# call can end in any order:
#
# - The call ends first. Its return value has one entry for each member, and each future gets its entry.
# - A member is stopped or times out first. It leaves, and its entry is dropped later. Its slot stays occupied until the
#   call ends, because the processor may still work on the job.
# - The last member leaves. No run needs the call any more, so it is cancelled, and the member waits for its end: its
#   job must not run elsewhere while the processor still works on it.
# - At shutdown all members leave together. The processor may still return results for work that is done; `_leave` waits
#   for them.
class Batcher:
    """Collects the runs of a worker into batches and calls the processor through another executor.

    A run that is stopped or times out leaves its batch immediately. The call continues for the other members and is
    cancelled when no member is left. A batch occupies all its slots until its call has ended.
    """

    def __init__(
        self,
        processor: Callable[[list[Job[Any, Any]]], Any],
        inner: Executor,
        options: BatchOptions,
        tasks: TaskScope,
        report_broken: Callable[[Exception], None],
    ) -> None:
        self._tasks = tasks
        self._processor = processor
        self._inner = inner
        self._inner_use = ExecutorUse(inner, report_broken)
        self._size = options.size
        self._wait = to_ms("batch wait", options.wait) / 1000
        self._gathering = _Batch()
        self._timer: asyncio.Handle | None = None
        self._running: set[_Batch] = set()
        self._abandoned: set[_Batch] = set()
        self._context = copy_context()

    @property
    def occupied(self) -> int:
        """Slots that no run holds but that are blocked by incomplete batches or by members that have left."""
        return sum(self._size - batch.live for batch in self._running) + self._inner.occupied * self._size

    @property
    def gathered(self) -> list[str]:
        """The entries of the jobs whose batch has not started."""
        return [entry_of(member.job) for member in self._gathering.members]

    def flush(self) -> None:
        """Start the collected batch now, and start every later batch without waiting for more jobs."""
        self._wait = 0.0
        self._begin()

    def when_ended(self, job: Job[Any, Any], call: Callable[[], None]) -> bool:
        """Call `call` when the call of the processor that got this job has ended. Return False if there is none."""
        for batch in (*self._running, *self._abandoned):
            if any(member.job is job for member in batch.members):
                self._call_at_end(batch, call)
                return True
        return False

    def _call_at_end(self, batch: _Batch, call: Callable[[], None]) -> None:
        # The inner executor got the first job of the batch, and may abandon the thread of the call.
        first = batch.members[0].job
        if batch in self._running and batch.task is not None:
            batch.task.add_done_callback(lambda _: when_ended(self._inner, first, call))
        else:
            when_ended(self._inner, first, call)

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the executor that makes the calls."""
        self._context = copy_context()
        await self._inner_use.start(freed)

    async def stop(self, grace: float) -> None:
        """Stop the executor that makes the calls."""
        await self._inner_use.stop(grace)

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Join the next batch. Return or raise the entry for this job in the processor's return value."""
        del handler  # the same function as self._processor, which takes the whole batch
        member = self._join(job, timeout)
        try:
            return await member.future
        except asyncio.CancelledError:
            if member.answer is _UNANSWERED:
                await self._leave(member)
            if member.answer is _UNANSWERED or isinstance(member.answer, BaseException):
                raise
            # The processor has returned although its cancellation was requested. Its work is done, so the result
            # counts.
            return member.answer

    # -- collecting -----------------------------------------------------------------------------------------------

    def _join(self, job: Job[Any, Any], timeout: float | None) -> _Member:
        batch = self._gathering
        member = _Member(batch, job, timeout)
        batch.members.append(member)
        if len(batch.members) == self._size:
            self._begin()
        elif len(batch.members) == 1:
            loop = asyncio.get_running_loop()
            # Never start synchronously: the other jobs of the same claim join in this iteration of the event loop.
            self._timer = loop.call_later(self._wait, self._begin) if self._wait else loop.call_soon(self._begin)
        return member

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._gathering = self._gathering, _Batch()
        for member in batch.members:
            if member.future.done():  # stopped in this iteration of the event loop
                member.batch = None
        batch.members = [member for member in batch.members if member.batch]
        if not batch.members:
            return
        batch.live = len(batch.members)
        self._running.add(batch)
        # Use the worker's own context. The context of a run would attribute the whole batch to one job in logs and
        # spans.
        jobs = [member.job for member in batch.members]
        batch.task = self._tasks.start(self._call(jobs), self._context.copy())
        batch.task.add_done_callback(partial(self._end_call, batch))
        for member in batch.members:
            if member.timeout is not None:
                member.timer = asyncio.get_running_loop().call_later(member.timeout, self._expire, batch, member)

    # -- one call -------------------------------------------------------------------------------------------------

    async def _call(self, jobs: list[Job[Any, Any]]) -> list[object]:
        count = len(jobs)
        # The task of this call was created in the context of one of its runs.
        set_current_job(None)
        for job in jobs:
            # Create the abort signal here, because a thread that polls it must not create it.
            _ = job.abort
        try:
            value = await self._inner.run(lambda _: self._processor(jobs), jobs[0], None)
            return _answers(value, count)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a processor raises is its jobs' failure
            return [error] * count

    def _end_call(self, batch: _Batch, task: asyncio.Task[list[object]]) -> None:
        self._running.discard(batch)
        if self._inner.occupied:
            self._abandoned.add(batch)
            when_ended(self._inner, batch.members[0].job, partial(self._abandoned.discard, batch))
        # A task that is cancelled before its first step never runs any of its code.
        answers = [asyncio.CancelledError()] * len(batch.members) if task.cancelled() else task.result()
        for member, answer in zip(batch.members, answers, strict=True):
            member.resolve(answer)

    def _expire(self, batch: _Batch, member: _Member) -> None:
        if member.future.done():
            return
        set_abort(member.job.abort, "timeout")
        member.late = TimeoutError(f"the run took longer than its timeout of {member.timeout:g} s")
        if batch.live > 1:
            batch.live -= 1
            member.future.set_exception(member.late)
        elif batch.task is not None:
            batch.task.cancel()

    async def _leave(self, member: _Member) -> None:
        """Remove a member whose run was stopped. The last member cancels the call and waits until it has ended."""
        batch = member.batch
        if batch is None:
            return
        if batch.task is None:
            batch.members.remove(member)
            if not batch.members and self._timer is not None:
                self._timer.cancel()
            return
        if member.timer is not None:
            member.timer.cancel()
        batch.live -= 1
        if not batch.live:
            batch.task.cancel()
        # At shutdown all members leave together, and the processor may still return results for finished work.
        if not batch.live or member.job.abort.reason == "shutdown":
            await asyncio.wait([batch.task])


def _answers(value: object, count: int) -> list[object]:
    """Return one entry per job from the return value of a processor."""
    if value is None:
        return [None] * count
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"a batch processor must return a list with one entry per job, or None, but it returned "
            f"{type(value).__name__}"
        )
    entries = list(cast("Sequence[object]", value))
    if len(entries) != count:
        raise ValueError(
            f"a batch processor must return one entry per job, or None, but it returned {len(entries)} entries "
            f"for {count} jobs"
        )
    return [_as_entry(entry) for entry in entries]


def _as_entry(entry: object) -> object:
    if not isinstance(entry, (StopIteration, KeyboardInterrupt, GeneratorExit)):
        return entry
    # A future cannot carry these exceptions into a coroutine unchanged.
    wrapped = RuntimeError(f"the entry of the job was a {type(entry).__name__}")
    wrapped.__cause__ = entry
    return wrapped
