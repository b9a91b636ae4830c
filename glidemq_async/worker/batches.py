"""Batches: claimed jobs are gathered and handed to the processor as one list; each job ends on its own.

A Batcher stands where an executor does, so claiming, leases, retries and settling know nothing of batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias, cast

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import to_ms
from glidemq_async.executors.protocol import ChecksHandlers, Executor, Handler
from glidemq_async.executors.sharing import Hold
from glidemq_async.jobs.context import set_current_job
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number

MAX_SIZE: Final = 1_000

Processor: TypeAlias = (
    Callable[[Job[Data, Result]], Awaitable[Result] | Result]
    | Callable[[list[Job[Data, Result]]], Awaitable[Sequence[Result | BaseException] | None]]
    | Callable[[list[Job[Data, Result]]], Sequence[Result | BaseException] | None]
)
"""A function of one job, or with `batch` of a list of jobs; a coroutine function or a plain one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """How a worker gathers jobs for a processor that takes a list of them.

    - `size`: the most jobs in one call of the processor, 1 to 1,000.
    - `wait`: how many seconds a batch that is not full waits for more jobs, from its first one on; 0 takes what one
      claim brought.

    Raises TypeError or ValueError for a bad value.
    """

    size: int = 100
    wait: float | timedelta = 0.0

    def __post_init__(self) -> None:
        if whole_number("batch size", self.size, least=1) > MAX_SIZE:
            raise ValueError(f"batch size must be from 1 to {MAX_SIZE}, got {self.size!r}")
        object.__setattr__(self, "wait", to_ms("batch wait", self.wait) / 1000)

    @property
    def wait_seconds(self) -> float:
        """The wait in seconds."""
        return cast("float", self.wait)


def batcher_of(batch: BatchOptions | None, processor: Any, executor: Executor) -> Batcher | None:
    """Return what gathers jobs for `processor`; None without `batch`. Raises TypeError for anything but options,
    and for an executor that cannot run batches."""
    if batch is None:
        return None
    if not isinstance(batch, BatchOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"batch must be BatchOptions, got {batch!r}")
    if isinstance(executor, ChecksHandlers):
        raise TypeError(
            f'{type(executor).__name__} runs one job at a time: leave out batch=, or use executor="inline" or "thread"'
        )
    return Batcher(processor, executor, batch)


_UNANSWERED: Final = object()


class _Member:
    """One job of a batch, and how it came out of it."""

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
        """Take this job's entry of the processor's answer."""
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
    """The members of one call; `live` counts those whose run still waits for the answer."""

    __slots__ = ("live", "members", "task")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.live = 0
        self.task: asyncio.Task[list[object]] | None = None


class Batcher:
    """Gathers the runs of a worker into batches and calls the processor through another executor.

    A run that is stopped, or whose timeout ends, leaves its batch at once; the call goes on for the others and is
    cancelled when nobody waits for it any more. A batch takes all its slots until its call has ended.
    """

    def __init__(self, processor: Callable[[list[Job[Any, Any]]], Any], inner: Executor, options: BatchOptions) -> None:
        self._processor = processor
        self._inner = inner
        self._held = Hold(inner)
        self._size = options.size
        self._wait = options.wait_seconds
        self._gathering = _Batch()
        self._timer: asyncio.Handle | None = None
        self._running: set[_Batch] = set()
        self._context = copy_context()

    @property
    def occupied(self) -> int:
        """Slots that no run holds and none can take: of batches that were not full, or that members have left."""
        return sum(self._size - batch.live for batch in self._running) + self._inner.occupied * self._size

    @property
    def gathered(self) -> list[str]:
        """The entries of the jobs whose batch has not begun."""
        return [member.job.entry for member in self._gathering.members]

    def hurry(self) -> None:
        """Begin what is gathered, and let no batch wait to fill from now on."""
        self._wait = 0.0
        self._begin()

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the executor that makes the calls."""
        self._context = copy_context()
        await self._held.start(freed)

    async def stop(self, grace: float) -> None:
        """Stop the executor that makes the calls."""
        await self._held.stop(grace)

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Join the next batch; return or raise what the processor's answer holds for this job."""
        del handler  # the processor itself, which takes the whole batch
        member = self._join(job, timeout)
        try:
            return await member.future
        except asyncio.CancelledError:
            if member.answer is _UNANSWERED:
                await self._leave(member)
            if member.answer is _UNANSWERED or isinstance(member.answer, BaseException):
                raise
            # The processor was cancelled, or about to be, and answered all the same: what is done is done.
            return member.answer

    # -- gathering ------------------------------------------------------------------------------------------------

    def _join(self, job: Job[Any, Any], timeout: float | None) -> _Member:
        batch = self._gathering
        member = _Member(batch, job, timeout)
        batch.members.append(member)
        if len(batch.members) == self._size:
            self._begin()
        elif len(batch.members) == 1:
            loop = asyncio.get_running_loop()
            # Never at once: the other jobs of the same claim take their first step in this turn of the loop.
            self._timer = loop.call_later(self._wait, self._begin) if self._wait else loop.call_soon(self._begin)
        return member

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._gathering = self._gathering, _Batch()
        for member in batch.members:
            if member.future.done():  # stopped in this turn of the loop
                member.batch = None
        batch.members = [member for member in batch.members if member.batch]
        if not batch.members:
            return
        batch.live = len(batch.members)
        self._running.add(batch)
        # In the worker's own context: that of one of the runs would give the whole batch to its job, in logs and spans.
        jobs = [member.job for member in batch.members]
        batch.task = asyncio.create_task(self._call(jobs), context=self._context.copy())
        batch.task.add_done_callback(partial(self._over, batch))
        for member in batch.members:
            if member.timeout is not None:
                member.timer = asyncio.get_running_loop().call_later(member.timeout, self._expire, batch, member)

    # -- one call -------------------------------------------------------------------------------------------------

    async def _call(self, jobs: list[Job[Any, Any]]) -> list[object]:
        count = len(jobs)
        # The task of this call was made in the context of one of its runs.
        set_current_job(None)
        for job in jobs:
            # A thread may look for its signal, and must not be the one who makes it.
            _ = job.abort
        try:
            value = await self._inner.run(lambda _: self._processor(jobs), jobs[0], None)
            return _answers(value, count)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a processor raises is its jobs' failure
            return [error] * count

    def _over(self, batch: _Batch, task: asyncio.Task[list[object]]) -> None:
        self._running.discard(batch)
        # A task that is cancelled before its first step never runs any of its code.
        answers = [asyncio.CancelledError()] * len(batch.members) if task.cancelled() else task.result()
        for member, answer in zip(batch.members, answers, strict=True):
            member.resolve(answer)

    def _expire(self, batch: _Batch, member: _Member) -> None:
        if member.future.done():
            return
        member.job.abort.set("timeout")
        member.late = TimeoutError(f"the run took longer than its timeout of {member.timeout:g} s")
        if batch.live > 1:
            batch.live -= 1
            member.future.set_exception(member.late)
        elif batch.task is not None:
            batch.task.cancel()

    async def _leave(self, member: _Member) -> None:
        """The run of a member is stopped. The last one to leave ends the call, and waits until that is so."""
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
        # At shutdown all of them leave together, and the processor may still answer for what it has done.
        if not batch.live or member.job.abort.reason == "shutdown":
            await asyncio.wait([batch.task])


def _answers(value: object, count: int) -> list[object]:
    """Return one answer per job of what a processor returned."""
    if value is None:
        return [None] * count
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"a batch processor must return a list with one entry per job, or None: it returned {type(value).__name__}"
        )
    entries = list(cast("Sequence[object]", value))
    if len(entries) != count:
        raise ValueError(
            f"a batch processor must return one entry per job, or None: it was given {count} jobs and "
            f"returned {len(entries)} entries"
        )
    return [_carried(entry) for entry in entries]


def _carried(entry: object) -> object:
    if not isinstance(entry, (StopIteration, KeyboardInterrupt, GeneratorExit)):
        return entry
    # None of them can travel through a future into a coroutine as what it is.
    wrapped = RuntimeError(f"the entry of the job was a {type(entry).__name__}")
    wrapped.__cause__ = entry
    return wrapped
