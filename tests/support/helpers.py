"""Helpers of many tests: workers that never poll, events that can be awaited, handlers that wait for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from glidemq_async import EventGap, Job, Queue, QueueEvent, QueueEvents, Worker
from glidemq_async.tasks.workflows import RunHandle

if TYPE_CHECKING:
    # A confined process imports this module, and the servers of the stores need a temporary directory.
    from tests.support.stores import RunningStore

Value = TypeVar("Value")
AnyJob: TypeAlias = Job[Any, Any]
AnyQueue: TypeAlias = Queue[Any, Any]
AnyWorker: TypeAlias = Worker[Any, Any]

PATIENCE = 30.0
"""The number of seconds after which a test stops waiting."""
NO_POLLING = 60.0


def worker_of(queue: AnyQueue, handler: Callable[[AnyJob], Any], **options: Any) -> AnyWorker:
    """Return a worker of a queue on its storage. It does not poll, so a lost wake-up fails the test."""
    options.setdefault("poll_interval", NO_POLLING)
    options.setdefault("shutdown_timeout", 5)
    return Worker(queue.name, handler, queue.storage, handle_signals=False, **options)


async def reaches(run: RunHandle[Any] | AnyJob, state: str) -> None:
    """Wait until a job, or the job of a workflow's run, is in a state."""
    job = run.job if isinstance(run, RunHandle) else run
    async with asyncio.timeout(PATIENCE):
        async for update in job.watch():
            if update.state == state:
                return


async def echo(job: AnyJob) -> Any:
    """A handler that returns its data."""
    return job.data


class Gate:
    """A handler whose runs wait until the test releases them."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[AnyJob] = asyncio.Queue()
        self.cancelled: asyncio.Queue[AnyJob] = asyncio.Queue()
        self._open = asyncio.Event()

    async def __call__(self, job: AnyJob) -> Any:
        self.started.put_nowait(job)
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(job)
            raise
        return job.data

    async def running(self) -> AnyJob:
        """Wait for the next run to start."""
        return await soon(self.started.get())

    async def stopped(self) -> AnyJob:
        """Wait for the next run to be cancelled."""
        return await soon(self.cancelled.get())

    def release(self) -> None:
        """Release all runs."""
        self._open.set()


async def soon(awaitable: Awaitable[Value], seconds: float = PATIENCE) -> Value:
    """Await something that must happen, with a time limit."""
    return await asyncio.wait_for(awaitable, seconds)


async def idle(worker: Any) -> None:
    """Wait until a worker is registered as idle. A worker without free slots has made a claim at least."""

    def is_waiting() -> bool:
        if not worker.health().ready:
            return False
        loop = worker._session.loop
        # A wake-up, such as the one after the subscription, causes another claim.
        is_registered = loop._registered and loop._is_waiting and not loop._claimable and not loop._event.is_set()
        return is_registered or not worker._slots.free()

    await until(is_waiting)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Heard:
    """The events of one kind that a worker emitted, in order."""

    def __init__(self, worker: AnyWorker, event: Any) -> None:
        self._calls: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        worker.on(event, lambda *details: self._calls.put_nowait(details))

    async def next(self) -> tuple[Any, ...]:
        """Wait for the next one."""
        return await soon(self._calls.get())

    @property
    def count(self) -> int:
        """Return the number of events that were not read yet."""
        return self._calls.qsize()


async def ended(job: AnyJob) -> AnyJob:
    """Wait until a job has ended, and refresh it."""
    try:
        await job.result(PATIENCE)
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001 - the test checks how it ended
        pass
    await job.refresh()
    return job


async def history(queue: AnyQueue) -> list[QueueEvent]:
    """Return the events of a queue so far."""
    async with QueueEvents(queue.name, queue.storage) as now:
        total = int(now.position.rpartition("/")[2])
    found: list[QueueEvent] = []
    if not total:
        return found
    async with asyncio.timeout(PATIENCE), QueueEvents(queue.name, queue.storage, after="0") as events:
        async for event in events:
            assert isinstance(event, QueueEvent)
            found.append(event)
            if int(event.position.rpartition("/")[2]) == total:
                break
    return found


async def job_events(queue: AnyQueue, job_id: str) -> list[tuple[str, str]]:
    """Return kind and detail of every event of one job so far."""
    return [(event.kind, event.detail) for event in await history(queue) if event.job_id == job_id]


class Reader:
    """The events of a queue, one at a time."""

    def __init__(self, events: AsyncIterator[QueueEvent | EventGap]) -> None:
        self._events = events

    async def next(self) -> QueueEvent:
        """Wait for the next event."""
        found = await soon(anext(self._events))
        assert isinstance(found, QueueEvent), found
        return found

    async def gap(self) -> EventGap:
        """Wait for a report of lost events."""
        found = await soon(anext(self._events))
        assert isinstance(found, EventGap), found
        return found


@asynccontextmanager
async def listening(queue: AnyQueue, after: str | None = None) -> AsyncGenerator[Reader]:
    """Read the events of a queue from now on, or from a position."""
    async with QueueEvents(queue.name, queue.storage, after=after) as events:
        # An open generator would be closed by the garbage collector at an unknown time.
        iterator = cast("AsyncGenerator[QueueEvent | EventGap]", events.__aiter__())
        try:
            yield Reader(iterator)
        finally:
            await iterator.aclose()


async def counts(queue: AnyQueue) -> dict[str, int]:
    """Return the number of jobs in each state that has any."""
    return {state: number for state, number in (await queue.get_job_counts()).items() if number}


async def records(queue: AnyQueue, store: RunningStore) -> set[str]:
    """Return the ids of the jobs that have a record."""
    prefix = f"glide:{{{queue.name}}}:job:"
    return {key.removeprefix(prefix) for key in await store.keys() if key.startswith(prefix)}
