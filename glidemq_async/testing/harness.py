"""A server of the test's own, its clock, and what a test asks of queues: run what is due, and what was added."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, cast, overload

from glidemq_async._internal.blocking import Blocking
from glidemq_async.errors import JobNotFound
from glidemq_async.jobs.job import Job
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import MemoryStorage, Storage
from glidemq_async.tasks import GlideMQ, Middleware
from glidemq_async.tasks.app_worker import AppWorker, WorkerOptionsDict
from glidemq_async.tasks.middleware import Chain
from glidemq_async.tasks.task import AnyTask
from glidemq_async.testing.clock import MovableClock
from glidemq_async.testing.sync_harness import SyncHarness
from glidemq_async.worker import Worker, WorkerPool

__all__ = ["Harness"]

AnyJob: TypeAlias = Job[Any, Any]
AnyQueue: TypeAlias = Queue[Any, Any]
AnyApp: TypeAlias = GlideMQ[Any]
T = TypeVar("T")

_ALL: Final = 1_000_000
_CONCURRENCY: Final = 10
"""Jobs that `drain` runs at a time unless it is told otherwise."""


class Harness:
    """The engine of production in the process of a test, without anything installed.

    A context manager: the server starts in a few milliseconds and is gone at the end, with all of its queues. `async
    with` is for tests that are coroutines, and what works for them works in their loop. `with` is for plain ones: a
    thread in the background has the loop, and `harness.sync` and `clock.sync` wait for what is done there. `storage`
    goes to the code under test, `clock` moves the server's time. Not for production: the server has switches that no
    other may have.
    """

    def __init__(self) -> None:
        self.storage: Final = MemoryStorage(testing=True)
        self.clock: Final = MovableClock(self.storage)
        self._queues: dict[str, AnyQueue] = {}
        self._apps: dict[AnyApp, str | Storage | None] = {}

    @property
    def sync(self) -> SyncHarness:
        """The same methods for a test without an event loop: `harness.sync.drain(mq)` waits."""
        return cast("SyncHarness", Blocking(self, self.storage))

    def __enter__(self) -> Self:
        self.sync.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Start the server; idempotent."""
        await self.storage.connect()

    async def close(self) -> None:
        """Close the queues of the harness and end the server; idempotent."""
        for queue in self._queues.values():
            await queue.close()
        self._queues.clear()
        for app, former in self._apps.items():
            await _in_loop_of(app, app.close())
            app.relocate(former)
            app.stores_crons = True
        self._apps.clear()
        await self.storage.close()

    def queue(self, name: str) -> AnyQueue:
        """Return the queue of that name, the same one each time; the harness closes it."""
        if name not in self._queues:
            self._queues[name] = Queue(name, self.storage)
        return self._queues[name]

    def use(self, app: AnyApp, *, crons: bool = True) -> AnyApp:
        """Let an app of tasks live on this server until the harness is closed, and return it.

        With `crons=False` the clock adds nothing: opening the app, and draining it, leaves its crons out. Raises
        RuntimeError when the app is open.
        """
        self._adopt(app)
        app.stores_crons = crons
        return app

    def _adopt(self, app: AnyApp) -> None:
        if app not in self._apps:
            self._apps[app] = app.relocate(self.storage)

    @overload
    async def drain(self, jobs: str | AnyQueue, processor: Callable[..., object], **options: Any) -> list[AnyJob]: ...

    @overload
    async def drain(self, jobs: AnyApp, **options: Any) -> list[AnyJob]: ...

    async def drain(
        self, jobs: str | AnyQueue | AnyApp, processor: Callable[..., object] | None = None, **options: Any
    ) -> list[AnyJob]:
        """Run what is due now, and what becomes due by that, in the running loop; returns the jobs as they ended.

        `jobs` is a queue with the processor of its jobs, or an app of tasks; `options` are those of Worker
        (`concurrency` is 10 here), and of an app `queues`, those to drain. An app that is open in another loop (that of
        a web service under test) is drained there. Executors start when a job needs them. Jobs that fail and are to be
        tried again later, delayed ones, and those that a limit or a pause holds back are left alone: move the clock,
        then drain again. A failed job is returned, not raised; read its `failed_reason`, or ask for `job.result()`.
        """
        options = {"concurrency": _CONCURRENCY, "handle_signals": False} | options
        if isinstance(jobs, GlideMQ):
            self._adopt(jobs)
            return await _in_loop_of(jobs, _drain_app(jobs, **options))
        if processor is None:
            raise TypeError("drain needs a processor to run the jobs of a queue; an app of tasks brings its own")
        name = jobs if isinstance(jobs, str) else jobs.name
        return await _drain(WorkerPool([Worker(name, processor, self.storage, **options)], handle_signals=False))

    @contextlib.contextmanager
    def eager(self, app: AnyApp) -> Generator[None]:
        """Let each add of a task, inside the block, run what is due at once: it returns the job as it ended.

        Delayed jobs wait for the clock as ever, and what a failed one raised is raised by `job.result()`.
        """
        self._adopt(app)
        former = app.chain
        app.chain = Chain([_Eager(self, app), *former.all])
        try:
            yield
        finally:
            app.chain = former

    async def added(self, queue: str | AnyQueue, name: str | None = None, data: object = None) -> list[AnyJob]:
        """Return the jobs that were added to a queue and still have a record, in order of adding.

        `name` and `data` filter as in `Queue.search_jobs`: a mapping matches jobs whose data has all of its items.
        """
        asked = self.queue(queue) if isinstance(queue, str) else queue
        return sorted(await asked.search_jobs(None, name, data, limit=_ALL), key=_order)

    async def assert_added(
        self, queue: str | AnyQueue, name: str | None = None, *, data: object = None, times: int = 1
    ) -> list[AnyJob]:
        """Check that so many jobs with this name and data were added, and return them. Raises AssertionError."""
        found = await self.added(queue, name, data)
        if len(found) == times:
            return found
        asked = queue if isinstance(queue, str) else queue.name
        everything = "".join(f"\n  {job.name} {job.data!r}" for job in await self.added(queue)) or " nothing"
        wanted = f"{name or 'any name'}" + ("" if data is None else f" and data {data!r}")
        raise AssertionError(
            f"expected {times} added to {asked!r} with {wanted}, found {len(found)}; it was given{everything}"
        )

    async def assert_nothing_added(self, queue: str | AnyQueue) -> None:
        """Check that a queue was given no job. Raises AssertionError."""
        await self.assert_added(queue, times=0)


class _Runs(Protocol):
    """A WorkerPool, or the worker of an app."""

    @property
    def workers(self) -> Sequence[Worker[Any, Any]]: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


async def _in_loop_of(app: AnyApp, work: Coroutine[Any, Any, T]) -> T:
    """Do what an app is to do where it is open."""
    loop = app.loop
    if loop is None or loop is asyncio.get_running_loop() or not loop.is_running():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def _drain_app(
    app: AnyApp, queues: Sequence[str] | None = None, *, concurrency: int, **options: Any
) -> list[AnyJob]:
    return await _drain(AppWorker(app, queues, concurrency, cast("WorkerOptionsDict", options), warm=False))


async def _drain(runs: _Runs) -> list[AnyJob]:
    ended: list[AnyJob] = []

    def note(job: AnyJob, _outcome: object) -> None:
        ended.append(job)

    for worker in runs.workers:
        worker.on("completed", note)
        worker.on("failed", note)
    async with runs:
        before = -1
        # The jobs of one queue may have added to another whose worker had found it empty.
        while before < len(ended):
            before = len(ended)
            await asyncio.gather(*(worker.until_empty(wait=False) for worker in runs.workers))
    for job in ended:
        with contextlib.suppress(JobNotFound):  # nothing of it is kept: it stays as its worker saw it end
            await job.refresh()
    return ended


class _Eager(Middleware):
    """Runs what is due after each add; the outermost, so that every other has seen the add before."""

    def __init__(self, harness: Harness, app: AnyApp) -> None:
        self._harness = harness
        self._app = app

    async def after_add(self, task: AnyTask, job: AnyJob) -> None:
        del task
        ended = await self._harness.drain(self._app)
        if job.gone:
            return
        try:
            await job.refresh()
        except JobNotFound:
            for other in ended:
                if (other.queue, other.id) == (job.queue, job.id):
                    job.end_as(other)


def _order(job: AnyJob) -> tuple[float, float, str]:
    # Generated ids count up; of jobs with ids of their own only the millisecond is known.
    created = job.created_at.timestamp() if job.created_at else 0.0
    return created, float(job.id) if job.id.isdigit() else math.inf, job.id
