"""The app: tasks declared as functions, their queues, and the workers that run them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from inspect import isasyncgenfunction
from math import inf
from types import TracebackType
from typing import Any, Generic, Self, Unpack, cast

from typing_extensions import TypeVar

from glidemq_async._internal import forks
from glidemq_async._internal.blocking import BlockingContext, blocking
from glidemq_async._internal.loops import Home, refuse_elsewhere
from glidemq_async.client.queue_client import DEFAULT_PREFIX, check_mode
from glidemq_async.durations import to_ms
from glidemq_async.errors import JobNotFound, SerializationError
from glidemq_async.instrumentation import Instrumentation
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import read_result_as
from glidemq_async.options.ids import GeneratedIds, id_maker
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.validation import whole_number
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.codecs.chain import codecs_of
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.queue import Mode, Queue
from glidemq_async.storage import Storage, StorageLike, open_storage
from glidemq_async.storage.urls import storage_here
from glidemq_async.tasks import real_servers
from glidemq_async.tasks.app_worker import AppWorker
from glidemq_async.tasks.declaring import Declaring
from glidemq_async.tasks.dependencies import Provider
from glidemq_async.tasks.middleware import Chain, Middleware
from glidemq_async.tasks.open_context import OpenContext
from glidemq_async.tasks.scopes import Overrides
from glidemq_async.tasks.task import AnyTask
from glidemq_async.worker.options import WorkerOptions, WorkerOptionsDict, worker_options

State = TypeVar("State", default=Any)


class GlideMQ(Declaring, Generic[State]):
    """An app: tasks, the queues to which they are added, and the workers that run them, in one storage.

    Create one per program, at the top of a module. `async with mq` opens its queues and upserts its crons. Adding a job
    also connects automatically; then call `await mq.close()` at the end. A closed app can be opened again, also in
    another event loop. Durations are in seconds:

    - `storage`: a URL, a Storage, a client of redis.asyncio, or None for `$GLIDEMQ_URL` and, without that variable, the
      embedded default. If a Storage object is in use in another event loop, the app opens separate connections.
    - `require_url`: disable the embedded default. Opening the app then raises StorageUnavailable if neither `storage`
      nor `$GLIDEMQ_URL` is given. Intended for production; `GLIDEMQ_REQUIRE_URL=1` does the same for the whole process.
    - `prefix`, `mode`, `serializer`, `codecs`, `payload_limit`, `timeout`, `instrumentation`: passed to all its queues
      and workers. `ids`: passed to its queues.
    - `queue`: the queue of tasks without their own. `default_options`: for all jobs, unless their task overrides them.
    - `middleware`: a list of Middleware that is called around every add and run, the outermost first.
    - `lifespan`: a function of the app, an async generator or `@asynccontextmanager`. It is entered before a worker
      runs its first job and left after the last one. The yielded value is `mq.state`.
    - `unknown_task_grace`: the time for which a job of an unknown task waits for a worker that knows the task. After
      that it fails with UnknownTaskError, like any failure with attempts and backoff. By default it waits without
      limit. Its `failed_reason` explains the wait, and no attempt is counted.

    Raises TypeError or ValueError for bad options.
    """

    def __init__(
        self,
        storage: StorageLike = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        mode: Mode | None = None,
        queue: str = "default",
        default_options: JobOptions | None = None,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        payload_limit: int | None = None,
        timeout: float | timedelta | None = None,
        instrumentation: Sequence[Instrumentation] = (),
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[GlideMQ[State]], AbstractAsyncContextManager[State] | AsyncIterator[State]] | None = None,
        unknown_task_grace: float | timedelta | None = None,
        require_url: bool = False,
        ids: GeneratedIds = "sequence",
    ) -> None:
        super().__init__(queue, default_options or JobOptions())
        codecs_of(codecs)
        check_mode(mode)
        if payload_limit is not None:
            whole_number("payload_limit", payload_limit, least=1)
        self.settings: Mapping[str, Any] = {
            "prefix": prefix,
            "serializer": serializer,
            **({} if mode is None else {"mode": mode}),
            **({} if payload_limit is None else {"payload_limit": payload_limit}),
            **({"codecs": tuple(codecs)} if codecs else {}),
            **({"instrumentation": tuple(instrumentation)} if instrumentation else {}),
        }
        id_maker(ids)
        self._ids: GeneratedIds = ids
        self.chain = Chain(middleware)
        self.overrides = Overrides()
        self.stores_crons = True
        """False if opening the app does not upsert its crons. Used by the test tools."""
        self.unknown_task_grace: float = inf
        """The time that a job of an unknown task waits, in seconds."""
        if unknown_task_grace is not None:
            self.unknown_task_grace = to_ms("unknown_task_grace", unknown_task_grace) / 1000
        self._timeout = timeout
        self._place = _checked(storage, timeout)
        self._requires_url = require_url
        self._storage: Storage | None = None
        self._queues: dict[str, Queue[Any, Any]] = {}
        if lifespan is not None and not callable(lifespan):
            raise TypeError(f"lifespan must be a function of the app, got {lifespan!r}")
        self._lifespan = lifespan
        self._open_lifespan: OpenContext | None = None
        self._state: Any = None
        self._users = self._workers = 0
        self._connected = False
        self._changing = asyncio.Lock()
        forks.watch(self)

    def after_fork(self) -> object:
        """Reset the users and locks of the app in a forked child; see `_internal/forks.py`."""
        parents = (self._changing, self._open_lifespan, self._state)
        self._changing, self._open_lifespan, self._state = asyncio.Lock(), None, None
        self._users = self._workers = 0
        self._connected = False
        return parents

    def __repr__(self) -> str:
        return f"<GlideMQ of {len(set(map(id, self.tasks.values())))} tasks>"

    @property
    def storage(self) -> Storage:
        """The storage of its queues."""
        if self._storage is None:
            self._storage = real_servers.check(
                open_storage(self._place, timeout=self._own_timeout, require_url=self._requires_url)
            )
        return self._storage

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the app, None before it is opened and after it is closed.

        Before the app is opened, this is the loop of its Storage object if that is already in use.
        """
        storage: object = self._place if self._storage is None else self._storage
        return storage.loop if isinstance(storage, Home) else None

    @property
    def sync(self) -> SyncApp:
        """Blocking `connect` and `close`, for code without an event loop. Tasks have their own `sync`."""
        return SyncApp(self, self)

    @property
    def _own_timeout(self) -> float | timedelta | None:
        """The timeout for a storage that this app opens. None for a Storage object, which has its own."""
        return None if isinstance(self._place, Storage) else self._timeout

    def relocate(self, storage: StorageLike) -> StorageLike:
        """Move a closed app to another storage. Return the previous one. Used by the test tools.

        Raises RuntimeError while the app is open.
        """
        if self._storage is not None or self._users:
            raise RuntimeError("the app is open and cannot move to another storage; close it first")
        former, self._place = self._place, _checked(storage)
        return former

    @property
    def state(self) -> State:
        """The value that the lifespan yielded. Raises RuntimeError while no worker of the app runs in this process."""
        if self._workers == 0 or self._lifespan is None:
            why = "it has no lifespan" if self._lifespan is None else "none of its workers runs in this process"
            raise RuntimeError(f"the app has no state: {why}")
        return cast("State", self._state)

    def queue(self, name: str) -> Queue[Any, Any]:
        """Return one of the app's queues, always the same object. It is closed together with the app."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = Queue(
                name,
                self.storage,
                default_options=self._default_options,
                ids=self._ids,
                **self.settings,
            )
        return found

    def add_middleware(self, middleware: Middleware) -> None:
        """Add an innermost middleware. Raises TypeError unless it is a Middleware."""
        self.chain.append(middleware)

    def override(self, provider: Provider, by: Provider) -> AbstractContextManager[None]:
        """Replace `provider` by `by` inside a `with` block, for tests. Values that already exist are not replaced."""
        return self.overrides.replaced(provider, by)

    # -- opening --------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, open the queues of all tasks, and upsert the crons. Idempotent.

        Raises StorageUnavailable, IncompatibleQueueError, and RuntimeError while the app is open in another loop.
        """
        if not self._connected:
            await self._enter(as_worker=False, connecting=True)

    async def close(self) -> None:
        """Send the waiting adds, and close the connections when no worker uses them any more. Idempotent.

        Raises RuntimeError if the app is open in another event loop that is still running.
        """
        if self._storage is not None:
            refuse_elsewhere(self.loop, repr(self))
        if self._changing.locked():  # a `connect` may be in progress
            async with self._changing:
                pass
        if self._connected:
            self._connected = False
            await self.leave(as_worker=False)
        elif not self._users:
            await self._let_go()

    async def enter(self, *, as_worker: bool) -> None:
        """Open the app for one more user. Used by workers."""
        await self._enter(as_worker=as_worker)

    async def _enter(self, *, as_worker: bool, connecting: bool = False) -> None:
        if self._storage is not None:
            refuse_elsewhere(self.loop, repr(self))
        if not self._users and not self._changing.locked():
            # A lock that had a waiter is bound to the event loop of that waiter.
            self._changing = asyncio.Lock()
        async with self._changing:
            if connecting and self._connected:
                return
            self._users += 1
            try:
                await self._open()
                if as_worker:
                    await self._enter_lifespan()
            except BaseException:
                self._users -= 1
                if not self._users:
                    await self._let_go()
                raise
            self._connected = self._connected or connecting

    async def leave(self, *, as_worker: bool) -> None:
        """Close the app if this was its last user. Used by workers."""
        async with self._changing:
            try:
                if as_worker:
                    await self._leave_lifespan()
            finally:
                # A forked child may leave a block that its parent has entered.
                self._users = max(0, self._users - 1)
                if not self._users:
                    await self._let_go()

    async def _open(self) -> None:
        if self._storage is None:
            self._storage = real_servers.check(
                storage_here(self._place, timeout=self._own_timeout, require_url=self._requires_url)
            )
        await self._storage.connect()
        for name in sorted(self.queues):
            await self.queue(name).connect()
        for cron in self._crons if self.stores_crons else ():
            task = cron.task
            await self.queue(task.queue).upsert_job_scheduler(
                task.name, cron.schedule, data=task.arguments.stored((), {}), **task.options_of_jobs.explicit()
            )

    async def _let_go(self) -> None:
        queues, self._queues = self._queues, {}
        storage, self._storage = self._storage, None
        async with AsyncExitStack() as closing:  # closes each queue even after a cancellation
            if storage is not None and storage is not self._place:
                closing.push_async_callback(storage.close)
            for queue in queues.values():
                closing.push_async_callback(queue.close)

    async def _enter_lifespan(self) -> None:
        if self._lifespan is not None and self._open_lifespan is None:
            opening = asynccontextmanager(self._lifespan) if isasyncgenfunction(self._lifespan) else self._lifespan
            lifespan = OpenContext(cast("AbstractAsyncContextManager[Any]", opening(self)))
            try:
                self._state = await lifespan.value()
            except BaseException:
                await lifespan.close()
                raise
            self._open_lifespan = lifespan
        self._workers += 1

    async def _leave_lifespan(self) -> None:
        self._workers -= 1
        if self._workers == 0 and self._open_lifespan is not None:
            lifespan, self._open_lifespan, self._state = self._open_lifespan, None, None
            await lifespan.close()

    async def __aenter__(self) -> Self:
        await self.enter(as_worker=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(as_worker=False)

    # -- used by tasks --------------------------------------------------------------------------------------------

    async def add_task(self, task: AnyTask, data: dict[str, Any], options: JobOptions) -> Job[Any, Any]:
        """Add one job of a task. Used by tasks."""
        options = await self.chain.before_add(task, options)
        try:
            job = await self.queue(task.queue).add_prepared(task.name, data, options)
        except SerializationError as error:
            raise task.arguments.named(error) from None
        return await self._added(task, job)

    async def add_tasks(self, task: AnyTask, data: list[dict[str, Any]], options: JobOptions) -> list[Job[Any, Any]]:
        """Add many jobs of a task. Used by tasks."""
        chosen = [await self.chain.before_add(task, options) for _ in data]
        rows = [(task.name, each, given) for each, given in zip(data, chosen, strict=True)]
        try:
            jobs = await self.queue(task.queue).add_bulk(rows)
        except SerializationError as error:
            raise task.arguments.named(error) from None
        return [await self._added(task, job) for job in jobs]

    async def _added(self, task: AnyTask, job: Job[Any, Any]) -> Job[Any, Any]:
        if task.reads_result:
            read_result_as(job, task.arguments.read_result)
        await self.chain.after_add(task, job)
        return job

    async def find_job(self, task: AnyTask, job_id: str) -> Job[Any, Any]:
        """Return a job of a task. Used by tasks. Raises JobNotFound."""
        job = await self.queue(task.queue).get_job(job_id)
        if job is None:
            raise JobNotFound(
                f"queue {task.queue!r} of task {task.name!r} has no job {job_id!r}: it was never added, was "
                "removed, or its retention has expired"
            )
        if task.reads_result:
            read_result_as(job, task.arguments.read_result)
        return job

    # -- workers --------------------------------------------------------------------------------------------------

    def worker(
        self,
        queues: Sequence[str] | None = None,
        *,
        options: WorkerOptions | None = None,
        **keywords: Unpack[WorkerOptionsDict],
    ) -> AppWorker:
        """Return a worker for the app's tasks, in all its queues or in the given ones.

        Each queue runs up to `concurrency` jobs (100). The keywords are the options of WorkerOptions; a keyword
        replaces the value in `options`. `executor` runs the tasks that have neither an executor nor permissions. Raises
        TypeError or ValueError for bad options, for a queue without tasks, and for a task that the executor cannot run.
        """
        return AppWorker(self, queues, worker_options(options, keywords)[0])

    async def run_worker(
        self,
        queues: Sequence[str] | None = None,
        *,
        until_empty: bool = False,
        options: WorkerOptions | None = None,
        **keywords: Unpack[WorkerOptionsDict],
    ) -> None:
        """Run a worker until SIGTERM or SIGINT, or with `until_empty` until no job can start any more.

        Raises the exceptions of `worker` and of its start.
        """
        await self.worker(queues, options=options, **keywords).run(until_empty=until_empty)


class SyncApp(BlockingContext[GlideMQ[Any]]):
    """`mq.sync`: blocking `connect` and `close` for code without an event loop; also a context manager."""

    connect = blocking(GlideMQ[Any].connect)
    close = blocking(GlideMQ[Any].close)


def _checked(storage: StorageLike, timeout: float | timedelta | None = None) -> StorageLike:
    """Validate a storage argument early, instead of at its first use. Opens nothing."""
    if storage is not None:
        open_storage(storage, timeout=timeout)
    return storage
