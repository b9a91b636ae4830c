"""Calls of a task for many items, of which a limited number is live at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing
from itertools import islice
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast, overload

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.loops import Home
from glidemq_async.client.ended import Ended
from glidemq_async.client.growing_collection import GrowingCollection
from glidemq_async.client.job_collection import Deliver
from glidemq_async.jobs.batch import JobBatch, JobOutcome, outcome_of, results_of
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.validation import whole_number
from glidemq_async.tasks.definition import Call, TaskDefinition

R = TypeVar("R")

MOST_AT_ONCE: Final = 100_000
_MOST_IN_CALL: Final = 500
_DONE: Final = object()


class MapQueue(Protocol):
    """The parts of the app that a map uses."""

    async def collect_added(self, definition: TaskDefinition, deliver: Deliver) -> GrowingCollection:
        """Return a wait for the ends of the jobs that the map adds."""
        ...

    async def add_calls(
        self,
        definition: TaskDefinition,
        calls: list[dict[str, Any]],
        options: JobOptions,
        collection: GrowingCollection | None = None,
    ) -> JobBatch[Any, Any]:
        """Add one job for each stored call, whose ends the collection awaits."""
        ...


class TaskMap(Generic[R]):
    """The results of a task for many items. Created by `task.map` and `task.starmap`; it can be used once.

    Nothing is added before the first `results`, `outcomes` or `as_ended`. Then the items are read one after the other,
    and at most `at_once` of their jobs are live at a time. So the items may come from a generator of any length, and
    neither this process nor the server holds more than a window of them.

    If the caller stops, is cancelled, or the items raise, the jobs that have not ended are revoked. Raises ValueError
    for a task with the option `job_id`, and TypeError or ValueError for a bad `at_once`.
    """

    def __init__(
        self,
        queue: MapQueue,
        definition: TaskDefinition,
        options: JobOptions,
        calls: Iterable[Call] | AsyncIterable[Call],
        at_once: int,
    ) -> None:
        if options.job_id is not None:
            raise ValueError("a map adds a job for each item, so its task cannot have the option job_id")
        self._queue = queue
        self._definition = definition
        self._options = options
        self._calls = calls
        self._at_once = whole_number("at_once", at_once, least=1, most=MOST_AT_ONCE)
        self._is_used = False

    def __repr__(self) -> str:
        return f"<TaskMap of task {self._definition.name!r}, {self._at_once} at once>"

    @property
    def sync(self) -> SyncTaskMap[R]:
        """The blocking methods, for code without an event loop."""
        return SyncTaskMap(self, cast("Home", self._queue))

    def __aiter__(self) -> AsyncIterator[JobOutcome[R]]:
        """Iterate like `outcomes`."""
        return self.outcomes()

    @overload
    async def results(self, *, on_failure: Literal["raise"] = "raise") -> list[R]: ...

    @overload
    async def results(self, *, on_failure: Literal["return"]) -> list[JobOutcome[R]]: ...

    async def results(self, *, on_failure: Literal["raise", "return"] = "raise") -> list[R] | list[JobOutcome[R]]:
        """Return the results in the order of the items.

        If jobs failed, raises BatchFailed after all jobs have ended. With `on_failure="return"` the list has a
        JobOutcome for each item instead. Raises what the items, the add and the wait raise, and ValueError for any
        other `on_failure`.
        """
        if on_failure not in {"raise", "return"}:
            raise ValueError(f'on_failure must be "raise" or "return", got {on_failure!r}')
        outcomes = [outcome async for outcome in self.outcomes()]
        return outcomes if on_failure == "return" else results_of(outcomes)

    async def outcomes(self) -> AsyncGenerator[JobOutcome[R]]:
        """Yield the outcome of each item, in the order of the items. A failure does not end the iteration."""
        window = self._open()
        waiting: dict[int, JobOutcome[R]] = {}
        following = 0
        async with aclosing(window.ends()) as ends:
            async for position, outcome in ends:
                waiting[position] = outcome
                while following in waiting:
                    yield waiting.pop(following)
                    following += 1
                    window.note_used()

    async def as_ended(self) -> AsyncGenerator[tuple[int, JobOutcome[R]]]:
        """Yield the position of each item and its outcome when its job ends."""
        window = self._open()
        async with aclosing(window.ends()) as ends:
            async for position, outcome in ends:
                yield position, outcome
                window.note_used()

    def _open(self) -> _Window[R]:
        if self._is_used:
            raise RuntimeError("the items of a map are read once; call task.map again")
        self._is_used = True
        return _Window(self._queue, self._definition, self._options, self._calls, self._at_once)


class SyncTaskMap(Blocking[TaskMap[R]], Generic[R]):
    """`task.map(...).sync`: the blocking methods of a map."""

    results = blocking(TaskMap[R].results)
    outcomes = blocking(TaskMap[R].outcomes)
    as_ended = blocking(TaskMap[R].as_ended)


# Three bounds hold. At most `at_once` jobs are live, counted from the call that adds them to the message of their end.
# At most twice as many items are between their add and the caller, so a slow caller, or a slow first item of an ordered
# map, stops the adds. And jobs are added in calls of a quarter of the window, so that the workers never run out of jobs
# while a call is under way.
class _Window(Generic[R]):
    """The live jobs of one map."""

    def __init__(
        self,
        queue: MapQueue,
        definition: TaskDefinition,
        options: JobOptions,
        calls: Iterable[Call] | AsyncIterable[Call],
        at_once: int,
    ) -> None:
        self._queue = queue
        self._definition = definition
        self._options = options
        self._calls = calls
        self._at_once = at_once
        self._piece = max(1, min(_MOST_IN_CALL, at_once // 4))
        self._begun = self._ended = self._used = 0
        self._live: dict[str, list[tuple[int, Job[Any, R]]]] = {}
        self._ends: dict[str, Ended | None] = {}
        """Ends of jobs whose add has no reply yet."""
        self._ready: deque[tuple[int, JobOutcome[R]]] = deque()
        self._arrived, self._has_room = asyncio.Event(), asyncio.Event()

    async def ends(self) -> AsyncGenerator[tuple[int, JobOutcome[R]]]:
        """Add the jobs, and yield the position and the outcome of each when it ends."""
        collection = await self._queue.collect_added(self._definition, self._note_end)
        collecting = asyncio.create_task(collection.run())
        feeding = asyncio.create_task(self._feed(collection))
        tasks = (feeding, collecting)
        for task in tasks:
            task.add_done_callback(self._note_task)
        try:
            while True:
                while self._ready:
                    yield self._ready.popleft()
                for task in tasks:
                    if task.done():
                        task.result()
                if self._ready:
                    continue
                if feeding.done() and self._ended == self._begun:
                    return
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            # In this order: the collection revokes the jobs of an add that was in flight too.
            await _end(feeding)
            await _end(collecting)

    def note_used(self) -> None:
        """Note that the caller has used an outcome."""
        self._used += 1
        self._has_room.set()

    async def _feed(self, collection: GrowingCollection) -> None:
        """Add a job for each item."""
        async with aclosing(self._pieces()) as pieces:
            async for calls in pieces:
                await self._room_for(len(calls))
                first = self._begun
                self._begun += len(calls)
                jobs = await self._add(calls, collection)
                for position, job in enumerate(jobs, first):
                    self._live.setdefault(job.id, []).append((position, job))
                for job_id in {job.id for job in jobs} & self._ends.keys():
                    self._match(job_id)
        collection.complete()

    async def _add(self, calls: list[Call], collection: GrowingCollection) -> JobBatch[Any, R]:
        stored = self._definition.stored_calls(calls)
        adding = asyncio.ensure_future(self._queue.add_calls(self._definition, stored, self._options, collection))
        try:
            return await asyncio.shield(adding)
        except asyncio.CancelledError:
            # The call may have reached the server. The collection learns its jobs from the reply, and revokes them.
            await asyncio.wait([adding])
            raise

    async def _room_for(self, count: int) -> None:
        while self._begun - self._ended + count > max(self._at_once, count) or (
            self._begun - self._used + count > 2 * max(self._at_once, count)
        ):
            self._has_room.clear()
            await self._has_room.wait()

    async def _pieces(self) -> AsyncGenerator[list[Call]]:
        if isinstance(self._calls, AsyncIterable):
            async for piece in _available(self._calls, self._piece):
                yield piece
            return
        calls = iter(self._calls)
        while piece := list(islice(calls, self._piece)):
            yield piece

    def _note_end(self, job_id: str, ended: Ended | None) -> None:
        self._ends[job_id] = ended
        if job_id in self._live:
            self._match(job_id)

    def _match(self, job_id: str) -> None:
        ended = self._ends.pop(job_id)
        for position, job in self._live.pop(job_id):
            self._ready.append((position, outcome_of(job, ended)))
            self._ended += 1
        self._arrived.set()
        self._has_room.set()

    def _note_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved here, because the caller may have left
        self._arrived.set()


async def _available(calls: AsyncIterable[Call], most: int) -> AsyncGenerator[list[Call]]:
    """Yield the available calls in pieces of at most `most`, so that a slow source does not delay them."""
    line: asyncio.Queue[Any] = asyncio.Queue(most)

    async def read() -> None:
        async for call in calls:
            await line.put(call)
        await line.put(_DONE)

    reading = asyncio.create_task(read())
    try:
        while True:
            taking = asyncio.ensure_future(line.get())
            await asyncio.wait([taking, reading], return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
                reading.result()
                continue
            piece = [taking.result()]
            while len(piece) < most and not line.empty():
                piece.append(line.get_nowait())
            is_last = piece[-1] is _DONE
            if calls_of := [call for call in piece if call is not _DONE]:
                yield calls_of
            if is_last:
                return
    finally:
        await _end(reading)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
