"""The test harness: a private server with its clock, and methods that run due jobs and inspect added ones."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, overload

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.connectable import Connectable
from glidemq_async._internal.waits import together
from glidemq_async.errors import JobNotFound, ResultTimeout
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.replies import Asking, asked
from glidemq_async.jobs.snapshot import end_as
from glidemq_async.queues.finding import use_tasks
from glidemq_async.queues.inspection import task_parameters
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import MemoryStorage, StorageLike
from glidemq_async.stored.call import named_call
from glidemq_async.tasks import GlideMQ, Middleware
from glidemq_async.tasks.app import core_of
from glidemq_async.tasks.app_worker import AppWorker
from glidemq_async.tasks.middleware import Chain
from glidemq_async.tasks.task import AnyTask
from glidemq_async.tasks.workflows import RunHandle
from glidemq_async.testing.clock import MovableClock
from glidemq_async.testing.jumps import jump_to_end
from glidemq_async.worker import Worker, WorkerPool
from glidemq_async.worker.options import worker_options

__all__ = ["Harness"]

AnyJob: TypeAlias = Job[Any, Any]
AnyQueue: TypeAlias = Queue[Any, Any]
AnyApp: TypeAlias = GlideMQ[Any]
T = TypeVar("T")

_ALL: Final = 1_000_000
_REPLY_SECONDS: Final = 0.2
"""Time for which a reply is awaited after the jobs have run. It has been recorded by then."""
_CONCURRENCY: Final = 10
"""The default number of jobs that `drain` runs at a time."""


class Harness(Connectable):
    """A private server for one test, with the function library of production. Nothing has to be running.

    A context manager: the server starts within milliseconds, and it is removed at the end with all its queues. Use
    `async with` in coroutine tests; everything then runs in the loop of the test. Use `with` in plain tests; a
    background thread then runs the loop, and `harness.sync` and `clock.sync` are the blocking methods. Pass `storage`
    to the code under test. `clock` moves the time of the server. Do not use a harness in production, because its
    server accepts calls that change its time.
    """

    def __init__(self) -> None:
        self.storage: Final = MemoryStorage(testing=True)
        self.clock: Final = MovableClock(self.storage)
        self._queues: dict[str, AnyQueue] = {}
        self._apps: dict[AnyApp, StorageLike] = {}

    @property
    def sync(self) -> SyncHarness:
        """The methods of the harness for tests without an event loop, for example `harness.sync.drain(mq)`."""
        return SyncHarness(self, self.storage)

    def __enter__(self) -> Self:
        self.sync.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync.close()

    async def connect(self) -> None:
        """Start the server; idempotent."""
        await self.storage.connect()

    async def close(self) -> None:
        """Close the queues of the harness and end the server; idempotent."""
        # The queues and apps are closed before the server ends: their last calls would otherwise wait for a server that
        # does not come back. The apps return to their former storage, because they are objects of the program and
        # outlive the test.
        for queue in self._queues.values():
            await queue.close()
        self._queues.clear()
        for app, former in self._apps.items():
            await _in_loop_of(app, app.close())
            core_of(app).relocate(former)
            core_of(app).settings.stores_crons = True
        self._apps.clear()
        await self.storage.close()

    def queue(self, name: str) -> AnyQueue:
        """Return the queue of this name. Further calls return the same object, and the harness closes it."""
        if name not in self._queues:
            self._queues[name] = queue = Queue(name, self.storage)
            use_tasks(queue, partial(self._parameters, name))
        return self._queues[name]

    def _parameters(self, name: str) -> dict[str, list[str]]:
        """Return the names of the parameters of the tasks of a queue, in all apps that use this server."""
        return {task: found for app in self._apps for task, found in core_of(app).tasks.parameters(name).items()}

    def use(self, app: AnyApp, *, crons: bool = True) -> AnyApp:
        """Connect a GlideMQ app to this server until the harness is closed, and return the app.

        With `crons=False` the crons of the app are not scheduled, so moving the clock adds no jobs. Raises
        RuntimeError when the app is already open.
        """
        self._adopt(app)
        core_of(app).settings.stores_crons = crons
        return app

    def _adopt(self, app: AnyApp) -> None:
        if app not in self._apps:
            self._apps[app] = core_of(app).relocate(self.storage)

    @overload
    async def drain(self, jobs: str | AnyQueue, processor: Callable[..., object], **options: Any) -> list[AnyJob]: ...

    @overload
    async def drain(self, jobs: AnyApp, **options: Any) -> list[AnyJob]: ...

    async def drain(
        self, jobs: str | AnyQueue | AnyApp, processor: Callable[..., object] | None = None, **options: Any
    ) -> list[AnyJob]:
        """Run all due jobs, including the jobs that they add, and return them after they ended.

        Pass a queue with a processor, or a GlideMQ app. `options` are the options of Worker (`concurrency` defaults to
        10 here); for an app, `queues` selects the queues to drain. If the app is open in another loop, for example in
        the loop of a web service under test, its jobs run there. Executors start when the first job needs them. Jobs
        that are delayed, suspended, wait for a retry, or are held by a limit or a pause do not run: move the clock or
        send a signal, and drain again. A failed job is returned and raises nothing; read its `failed_reason` or call
        `job.result()`. Raises TypeError for a queue without a processor.
        """
        options = {"concurrency": _CONCURRENCY, "handle_signals": False} | options
        if isinstance(jobs, GlideMQ):
            self._adopt(jobs)
            return await _in_loop_of(jobs, _drain_app(jobs, **options))
        if processor is None:
            raise TypeError("drain of a queue needs a processor that runs its jobs; pass one, or drain a GlideMQ app")
        name = jobs if isinstance(jobs, str) else jobs.name
        return await _drain(WorkerPool([Worker(name, processor, self.storage, **options)], handle_signals=False))

    async def finish(self, app: AnyApp, run: RunHandle[Any] | AnyJob, **options: Any) -> AnyJob:
        """Run the jobs of an app until a run of a workflow or another job has ended, and return its job.

        Whenever the job waits for an instant, the clock moves there: through sleeps, timeouts, delays and retries.
        The waits of its children count too. `options` are as for `drain`. Raises AssertionError if the job waits for
        something that the clock does not bring, for example for a signal without a timeout.
        """
        job = run.job if isinstance(run, RunHandle) else run
        return await jump_to_end(job, self.clock, _TestedApp(self, app, options))

    async def send(self, run: RunHandle[Any] | AnyJob, signal: object) -> None:
        """Send an instance of a class with `@mq.signal` to a run or another job. Raises the errors of `Job.send`.

        The job receives it when it runs: `drain` or `finish` run it.
        """
        await run.send(signal)

    async def send_and_wait(self, app: AnyApp, run: RunHandle[Any] | AnyJob, signal: object, **options: Any) -> Any:
        """Send a signal to a run, run the due jobs of its app, and return what it passes to `workflows.reply`.

        `signal` is an instance of a class with `@mq.signal`. `options` are as for `drain`. Raises NoReply if the job
        has ended without a reply, and AssertionError if it has not ended: then it waits for something else first.
        """
        job = run.job if isinstance(run, RunHandle) else run
        self._adopt(app)
        return await _in_loop_of(app, self._asked(app, job, signal, options))

    async def _asked(self, app: AnyApp, job: AnyJob, signal: object, options: Mapping[str, Any]) -> Any:
        async with app:
            client = client_of(app.queue(job.queue))
            async with asked(client, job.id, Asking(signal)) as question:
                await self.drain(app, **options)
                try:
                    return await question.reply(_REPLY_SECONDS)
                except ResultTimeout:
                    state = await job.get_state()
                    raise AssertionError(
                        f"job {job.id} has not replied, because it is {state}; let it receive the signal"
                    ) from None

    @contextlib.contextmanager
    def eager(self, app: AnyApp) -> Generator[None]:
        """Run due jobs inside each `add` of a task within the block; `add` then returns an ended job.

        Delayed jobs still wait for the clock. The error of a failed job is raised by `job.result()`, not by `add`.
        """
        self._adopt(app)
        core = core_of(app)
        former = core.chain
        # A middleware sees each add of the app's tasks, wherever the code under test makes it.
        core.chain = Chain([_Eager(self, app), *former.all])
        try:
            yield
        finally:
            core.chain = former

    async def added(self, queue: str | AnyQueue, name: str | None = None, data: object = None) -> list[AnyJob]:
        """Return the jobs of a queue that still have a record, in the order in which they were added.

        `name` and `data` filter as in `Queue.search_jobs`: a mapping matches jobs whose data has all of its items.
        The data of a task are its arguments by name.
        """
        asked = self.queue(queue) if isinstance(queue, str) else queue
        return sorted(await asked.search_jobs(None, name, data, limit=_ALL), key=_order)

    async def assert_added(
        self, queue: str | AnyQueue, name: str | None = None, *, data: object = None, times: int = 1
    ) -> list[AnyJob]:
        """Return the added jobs with this name and data. Raises AssertionError unless their number is `times`."""
        found = await self.added(queue, name, data)
        if len(found) == times:
            return found
        asked = queue if isinstance(queue, str) else queue.name
        tasks = await task_parameters(self.queue(queue) if isinstance(queue, str) else queue)
        rows = [(job.name, named_call(job.data, tasks.get(job.name))) for job in await self.added(queue)]
        everything = "".join(f"\n  {found_name} {shown!r}" for found_name, shown in rows) or " nothing"
        wanted = f"{name or 'any name'}" + ("" if data is None else f" and data {data!r}")
        raise AssertionError(
            f"expected {times} jobs in {asked!r} with {wanted}, found {len(found)}; added jobs:{everything}"
        )

    async def assert_nothing_added(self, queue: str | AnyQueue) -> None:
        """Raise AssertionError if a job was added to the queue."""
        await self.assert_added(queue, times=0)


class SyncHarness(Blocking[Harness]):
    """The type of `harness.sync`: the coroutines of Harness as blocking methods with the same parameters and errors.

    Jobs run in the event loop of a background thread. `job.sync.result()` waits for the result of a job.
    """

    connect = blocking(Harness.connect)
    close = blocking(Harness.close)
    added = blocking(Harness.added)
    assert_added = blocking(Harness.assert_added)
    assert_nothing_added = blocking(Harness.assert_nothing_added)
    send = blocking(Harness.send)

    # `blocking` would keep only the first overload for mypy.
    @overload
    def drain(
        self, jobs: str | Queue[Any, Any], processor: Callable[..., object], **options: Any
    ) -> list[Job[Any, Any]]: ...

    @overload
    def drain(self, jobs: GlideMQ[Any], **options: Any) -> list[Job[Any, Any]]: ...

    def drain(self, jobs: Any, processor: Callable[..., object] | None = None, **options: Any) -> list[Job[Any, Any]]:
        """Run all due jobs, including the jobs that they add, and return them after they ended."""
        if processor is None:
            return self._finish(self._owner.drain(jobs, **options))
        return self._finish(self._owner.drain(jobs, processor, **options))

    def send_and_wait(
        self, app: GlideMQ[Any], run: RunHandle[Any] | Job[Any, Any], signal: object, **options: Any
    ) -> Any:
        """Send a signal to a run, run the due jobs of its app, and return what it passes to `workflows.reply`."""
        return self._finish(self._owner.send_and_wait(app, run, signal, **options))

    def finish(self, app: GlideMQ[Any], run: RunHandle[Any] | Job[Any, Any], **options: Any) -> Job[Any, Any]:
        """Run the jobs of an app until a run of a workflow or another job has ended, and return its job."""
        return self._finish(self._owner.finish(app, run, **options))


@dataclass(frozen=True, slots=True)
class _TestedApp:
    harness: Harness
    app: AnyApp
    options: Mapping[str, Any]

    async def drain(self) -> object:
        return await self.harness.drain(self.app, **self.options)

    async def find(self, queue: str, job_id: str) -> AnyJob | None:
        """Return a job as the queue of the app returns it."""
        return await _in_loop_of(self.app, self._found(queue, job_id))

    async def _found(self, queue: str, job_id: str) -> AnyJob | None:
        async with self.app:
            return await self.app.queue(queue).get_job(job_id)


class _Runs(Protocol):
    """A WorkerPool, or the worker of an app."""

    @property
    def workers(self) -> Sequence[Worker[Any, Any]]: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


async def _in_loop_of(app: AnyApp, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop in which the app is open."""
    # A web service under test may run in another thread, with its app open there. Objects of that loop cannot be used
    # in this one, so the work goes to them.
    loop = core_of(app).loop
    if loop is None or loop is asyncio.get_running_loop() or not loop.is_running():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def _drain_app(app: AnyApp, queues: Sequence[str] | None = None, **options: Any) -> list[AnyJob]:
    chosen, _ = worker_options(None, options)
    return await _drain(AppWorker(core_of(app), queues, chosen, warm=False))


async def _drain(runs: _Runs) -> list[AnyJob]:
    ended: list[AnyJob] = []

    def note(job: AnyJob, _outcome: object) -> None:
        ended.append(job)

    for worker in runs.workers:
        worker.on("completed", note)
        worker.on("failed", note)
    async with runs:
        await _work_until_empty(runs, ended)
    for job in ended:
        with contextlib.suppress(JobNotFound):  # without a record it keeps its values
            await job.refresh()
    return ended


class _Eager(Middleware):
    """Runs due jobs after each add. It is the outermost middleware, so the others see the add first."""

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
                    end_as(job, other)


def _order(job: AnyJob) -> tuple[float, float, str]:
    # Generated ids are consecutive. For custom ids only the millisecond of the add is known.
    created = job.created_at.timestamp() if job.created_at else 0.0
    return created, float(job.id) if job.id.isdigit() else math.inf, job.id


async def _work_until_empty(runs: _Runs, ended: Sized) -> None:
    before = -1
    # A job of one queue may have added jobs to another queue after its worker found that queue empty.
    while before < len(ended):
        before = len(ended)
        await together(worker.until_empty(wait=False) for worker in runs.workers)
