"""The app: tasks declared as functions, their queues, and the workers that run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from inspect import isasyncgenfunction
from math import inf
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, Unpack, cast

from typing_extensions import TypeVar

from glidemq_async._internal.blocking import BlockingContext, blocking
from glidemq_async.client.queue_client import DEFAULT_PREFIX, check_mode
from glidemq_async.durations import to_ms
from glidemq_async.instrumentation import Instrumentation
from glidemq_async.options.ids import GeneratedIds, id_maker
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.validation import refuse_unknown, whole_number
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.codecs.chain import codecs_of
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.event_rules import EventRules
from glidemq_async.queues.limits import QueueLimits
from glidemq_async.queues.queue import Mode, Queue
from glidemq_async.storage import Storage, StorageLike
from glidemq_async.tasks.app_worker import AppWorker
from glidemq_async.tasks.core import AppCore, AppSettings, checked_storage
from glidemq_async.tasks.declaring import Declaring
from glidemq_async.tasks.dependencies import Provider
from glidemq_async.tasks.included_modules import IncludedModules
from glidemq_async.tasks.middleware import Chain, Middleware
from glidemq_async.topics.topic import Topic, TopicSettings
from glidemq_async.worker.options import WorkerOptions, WorkerOptionsDict, check_version, worker_options

State = TypeVar("State", default=Any)
Lifespan: TypeAlias = "Callable[[GlideMQ[State]], AbstractAsyncContextManager[State] | AsyncIterator[State]]"
"""A function of the app: an async generator, or a function that returns an async context manager."""


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
    - `version`: the version of the code, which its workers report; see WorkerOptions. The default is
      `$GLIDEMQ_VERSION`.
    - `include`: the names of modules that declare tasks. They are imported when a worker is created or a `glidemq`
      command loads the app, and not in processes that only add jobs. A module that cannot be imported raises
      ImportError there.

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
        lifespan: Lifespan[State] | None = None,
        unknown_task_grace: float | timedelta | None = None,
        require_url: bool = False,
        ids: GeneratedIds = "sequence",
        version: str | None = None,
        include: Sequence[str] = (),
    ) -> None:
        # Queues and workers check these options too, but an app creates them when they are first used. Checked here, a
        # mistake is found when the module of the app is imported.
        codecs_of(codecs)
        check_mode(mode)
        if payload_limit is not None:
            whole_number("payload_limit", payload_limit, least=1)
        id_maker(ids)
        if version is not None:
            check_version("version", version)
        grace = inf if unknown_task_grace is None else to_ms("unknown_task_grace", unknown_task_grace) / 1000
        # An option that was not given is left out of `shared`, so that the defaults of Queue and Worker apply, which
        # are stated only there.
        settings = AppSettings(
            shared={
                "prefix": prefix,
                "serializer": serializer,
                **({} if mode is None else {"mode": mode}),
                **({} if payload_limit is None else {"payload_limit": payload_limit}),
                **({"codecs": tuple(codecs)} if codecs else {}),
                **({"instrumentation": tuple(instrumentation)} if instrumentation else {}),
            },
            default_options=default_options or JobOptions(),
            ids=ids,
            timeout=timeout,
            requires_url=require_url,
            unknown_task_grace=grace,
            version=version,
            included=IncludedModules(include),
            lifespan=None if lifespan is None else partial(_opened, _checked_lifespan(lifespan), self),
        )
        core = AppCore(checked_storage(storage, timeout), settings, Chain(middleware))
        super().__init__(core, queue)

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def storage(self) -> Storage:
        """The storage of its queues."""
        return self._core.storage

    @property
    def sync(self) -> SyncApp:
        """Blocking `connect` and `close`, for code without an event loop. Tasks have their own `sync`."""
        return SyncApp(self, self._core)

    @property
    def state(self) -> State:
        """The value that the lifespan yielded. Raises RuntimeError while no worker of the app runs in this process."""
        return cast("State", self._core.state)

    def queue(
        self, name: str, *, limits: QueueLimits | None = None, events: EventRules | None = None
    ) -> Queue[Any, Any]:
        """Return one of the app's queues, always the same object. It is closed together with the app.

        `limits` declares the limits of the queue, and `events` the rules of its events. The workers of the app store
        them when they start, and remove those that the code no longer declares. A setting that an operator holds
        applies until it is released. Opens nothing, so a module can call it at its top.

        Raises TypeError or ValueError for a bad name, limits or rules, and ValueError if the app declares other ones.
        """
        found = self._core.queue(name)
        if limits is not None:
            self._core.limits.add_queue(name, limits)
        if events is not None:
            self._core.limits.add_events(name, events)
        return found

    def topic(self, name: str, **settings: Unpack[TopicSettings]) -> Topic:
        """Return one of the app's topics, always the same object. It is closed together with the app.

        The settings are `max_messages`, `max_age` and `until_read`, as for Topic. Raises TypeError or ValueError for
        bad ones, and ValueError if the topic has other settings.
        """
        refuse_unknown(settings, TopicSettings.__annotations__, "topic")
        return self._core.topic(name, settings)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add an innermost middleware. Raises TypeError unless it is a Middleware."""
        self._core.chain.append(middleware)

    def override(self, provider: Provider, by: Provider) -> AbstractContextManager[None]:
        """Replace `provider` by `by` inside a `with` block, for tests. Values that already exist are not replaced."""
        return self._core.overrides.replaced(provider, by)

    # -- opening --------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, open the queues of all tasks, and upsert the crons. Idempotent.

        Raises StorageUnavailable, IncompatibleQueueError, and RuntimeError while the app is open in another loop.
        """
        await self._core.connect()

    async def close(self) -> None:
        """Send the waiting adds, and close the connections when no worker uses them any more. Idempotent.

        Raises RuntimeError if the app is open in another event loop that is still running.
        """
        await self._core.close()

    async def __aenter__(self) -> Self:
        await self._core.enter(as_worker=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._core.leave(as_worker=False)

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
        Raises ImportError for a module of `include` that cannot be imported.
        """
        return AppWorker(self._core, queues, worker_options(options, keywords)[0])

    async def run_worker(
        self,
        queues: Sequence[str] | None = None,
        *,
        until_empty: bool = False,
        options: WorkerOptions | None = None,
        **keywords: Unpack[WorkerOptionsDict],
    ) -> None:
        """Run a worker until SIGTERM or SIGINT, or with `until_empty` until no job can start any more.

        `queues`, `options` and the keywords are as for `worker`. Raises the exceptions of `worker` and of its start.
        """
        await self.worker(queues, options=options, **keywords).run(until_empty=until_empty)


class SyncApp(BlockingContext[GlideMQ[Any]]):
    """`mq.sync`: blocking `connect` and `close` for code without an event loop; also a context manager."""

    connect = blocking(GlideMQ[Any].connect)
    close = blocking(GlideMQ[Any].close)


def core_of(app: GlideMQ[Any]) -> AppCore:
    """Return the shared state of an app, for workers, tools and integrations."""
    return app._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _checked_lifespan(lifespan: Lifespan[State]) -> Lifespan[State]:
    if not callable(lifespan):
        raise TypeError(f"lifespan must be a function of the app, got {lifespan!r}")
    return lifespan


def _opened(lifespan: Lifespan[State], app: GlideMQ[State]) -> AbstractAsyncContextManager[State]:
    # Each opening calls the function again. An app that is closed and opened again, perhaps in another event loop, gets
    # a new state.
    opening = asynccontextmanager(lifespan) if isasyncgenfunction(lifespan) else lifespan
    return cast("AbstractAsyncContextManager[State]", opening(app))
