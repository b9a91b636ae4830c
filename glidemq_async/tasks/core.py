"""The shared state of an app: its storage, queues, tasks, middleware and lifespan, and the count of its users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, Final

from glidemq_async._internal import forks
from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async._internal.loops import Home, refuse_elsewhere
from glidemq_async.client.growing_collection import GrowingCollection
from glidemq_async.client.job_collection import Deliver
from glidemq_async.errors import JobNotFound, SerializationError
from glidemq_async.flows.nodes import FlowJob
from glidemq_async.flows.producer import FlowProducer
from glidemq_async.jobs.batch import JobBatch
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import read_result_as
from glidemq_async.options.ids import GeneratedIds
from glidemq_async.options.job_options import JobOptions
from glidemq_async.queues.finding import use_tasks
from glidemq_async.queues.internals import add_for_caller, add_prepared, add_prepared_and_wait, collect_added
from glidemq_async.queues.queue import Queue
from glidemq_async.queues.schedulers import declare_scheduler
from glidemq_async.schedules.schedule import Schedule
from glidemq_async.storage import Storage, StorageLike, open_storage
from glidemq_async.storage.redis.server import close_owned
from glidemq_async.storage.urls import storage_here
from glidemq_async.tasks import real_servers
from glidemq_async.tasks.app_queue import AppQueue
from glidemq_async.tasks.awaited_task import WaitOptions
from glidemq_async.tasks.declared_limits import DeclaredLimits
from glidemq_async.tasks.definition import TaskDefinition
from glidemq_async.tasks.included_modules import IncludedModules
from glidemq_async.tasks.middleware import Chain
from glidemq_async.tasks.open_context import OpenContext
from glidemq_async.tasks.registry import Tasks
from glidemq_async.tasks.scopes import Overrides
from glidemq_async.tasks.subscriptions import SubscribedTask, call_of, decoder_of, stored_value
from glidemq_async.tasks.task import AnyTask, FlowCall, definition_of
from glidemq_async.tasks.workflow_calls import call_child
from glidemq_async.topics.feeding import FeedSource
from glidemq_async.topics.reader import MessageReader, TopicListener, serve
from glidemq_async.topics.topic import Topic, TopicSettings, change_settings, convert_with, functions_of
from glidemq_async.worker.options import own_version


@dataclass(frozen=True, slots=True)
class CronTask:
    """A task whose jobs are added by the job scheduler with its name."""

    task: AnyTask
    schedule: Schedule


_CLOSED: Final = (
    "the app is closed, and with it the jobs that it returned; open it again, and get the job with "
    "mq.queue(name).get_job(id)"
)


@dataclass(slots=True, kw_only=True)
class AppSettings:
    """The options of an app, validated."""

    shared: Mapping[str, Any]
    """The options that its queues and workers share."""
    default_options: JobOptions
    ids: GeneratedIds
    timeout: float | timedelta | None
    requires_url: bool
    unknown_task_grace: float = inf
    """The time that a job of an unknown task waits, in seconds."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    version: str | None = None
    """The version of the code, None for `$GLIDEMQ_VERSION`."""
    included: IncludedModules = field(default_factory=lambda: IncludedModules(()))
    """The modules that workers and commands import."""
    stores_crons: bool = field(default=True)
    """False if opening the app does not upsert its crons, for tests."""


# An app is open while it has users: the application that called `connect` or entered the app, and each worker. The
# first user opens the storage, queues and crons, and the last one closes them. A web application can therefore run a
# worker in its own process, and the order in which the two are closed does not matter.
#
# `_changing` makes each change of the number of users one step. Without it, a user that enters while the last one
# leaves would get queues that are being closed. The lock is replaced while the app has no users, because an asyncio
# lock belongs to the event loop of its first waiter, and a closed app may be opened again in another loop.
#
# The lifespan has its own count, because only workers need it: a web process that adds jobs must not open the resources
# of the handlers.
class AppCore:
    """The state that an app, its tasks and its workers share. GlideMQ has the methods for users."""

    def __init__(self, storage: StorageLike, settings: AppSettings, chain: Chain) -> None:
        self.settings: Final = settings
        self.tasks: Final = Tasks()
        self.crons: Final[list[CronTask]] = []
        self.listeners: Final[list[TopicListener]] = []
        self._listening = BackgroundTasks()
        self.subscriptions: Final[list[SubscribedTask]] = []
        self.chain = chain
        self.overrides: Final = Overrides()
        self._given = storage
        self._storage: Storage | None = None
        self.limits: Final = DeclaredLimits()
        self._queues: dict[str, AppQueue] = {}
        self._topics: dict[str, Topic] = {}
        self._topic_settings: dict[str, TopicSettings] = {}
        self._open_lifespan: OpenContext | None = None
        self._state: Any = None
        self._users = self._workers = 0
        self._connected = False
        self._changing = asyncio.Lock()
        forks.watch(self)

    def _after_fork(self) -> object:
        # The users and locks of the parent do not exist in the child.
        parents = (self._changing, self._open_lifespan, self._state, self._listening)
        self._listening = BackgroundTasks()
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
                open_storage(self._given, timeout=self._own_timeout, require_url=self.settings.requires_url)
            )
        return self._storage

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the app, None before it is opened and after it is closed.

        Before the app is opened, this is the loop of its Storage object if that is already in use.
        """
        storage: object = self._given if self._storage is None else self._storage
        return storage.loop if isinstance(storage, Home) else None

    @property
    def _own_timeout(self) -> float | timedelta | None:
        """The timeout for a storage that this app opens. None for a Storage object, which has its own."""
        return None if isinstance(self._given, Storage) else self.settings.timeout

    def relocate(self, storage: StorageLike) -> StorageLike:
        """Move a closed app to another storage. Return the previous one. Raises RuntimeError while the app is open."""
        if self._storage is not None or self._users:
            raise RuntimeError("the app is open and cannot move to another storage; close it first")
        former, self._given = self._given, checked_storage(storage)
        return former

    @property
    def state(self) -> Any:
        """The value that the lifespan yielded. Raises RuntimeError while no worker of the app runs in this process."""
        if self._workers == 0 or self.settings.lifespan is None:
            why = "it has no lifespan" if self.settings.lifespan is None else "none of its workers runs in this process"
            raise RuntimeError(f"the app has no state: {why}")
        return self._state

    def queue(self, name: str) -> Queue[Any, Any]:
        """Return one of the app's queues, always the same object. It is closed together with the app."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = AppQueue(name, self._initialize)
        return found

    def separate_queue(self, name: str) -> Queue[Any, Any]:
        """Return a new object for one of the app's queues. Its user closes it."""
        found = AppQueue(name, self._initialize)
        found.bind()
        return found

    def _initialize(self, queue: AppQueue) -> None:
        """Give a queue the present storage at its first use."""
        name, settings = queue.name, self.settings
        Queue.__init__(
            queue,
            name,
            self.storage,
            default_options=settings.default_options,
            ids=settings.ids,
            **self.shared_of(name),
        )
        use_tasks(queue, partial(self.tasks.parameters, name))

    def shared_of(self, queue: str) -> Mapping[str, Any]:
        """Return the settings of a queue. The mode does not apply to subscriptions: their messages decide on keys."""
        if any(one.task.queue == queue for one in self.subscriptions):
            return {name: value for name, value in self.settings.shared.items() if name != "mode"}
        return self.settings.shared

    def topic(self, name: str, settings: TopicSettings | None = None) -> Topic:
        """Return one of the app's topics, always the same object. It is closed together with the app.

        Raises ValueError for settings that differ from earlier ones.
        """
        if settings:
            if self._topic_settings.setdefault(name, settings) != settings:
                raise ValueError(f"topic {name!r} has other settings in this app: {self._topic_settings[name]}")
            if name in self._topics:
                change_settings(self._topics[name], settings)
        found = self._topics.get(name)
        if found is None:
            shared = {key: value for key, value in self.settings.shared.items() if key in _OF_TOPICS}
            found = Topic(name, self.storage, **shared, **self._topic_settings.get(name, {}))
            convert_with(found, stored_value)
            self._topics[name] = found
        return found

    def source_of(self, queue: str) -> FeedSource | None:
        """Return the subscription of a queue, None if it is no queue of a subscription."""
        for one in self.subscriptions:
            if one.task.queue == queue:
                definition = definition_of(one.task)
                return FeedSource(
                    open_topic=partial(self.topic, one.topic),
                    topic_name=one.topic,
                    name=one.name,
                    patterns=one.patterns,
                    start=one.start,
                    backlog=one.backlog,
                    options=definition.options,
                    job_name=definition.name,
                    shape=call_of,
                )
        return None

    # -- opening --------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, open the queues of all tasks, and upsert the crons. Idempotent."""
        if not self._connected:
            await self._enter(as_worker=False, connecting=True)

    async def close(self) -> None:
        """Send the waiting adds, and close the connections when no worker uses them any more. Idempotent."""
        if self._storage is not None:
            refuse_elsewhere(self.loop, repr(self))
        if self._changing.locked():  # a `connect` may be in progress
            async with self._changing:
                pass
        if self._connected:
            self._connected = False
            await self.leave(as_worker=False)
        elif not self._users:
            await self._close_resources()

    async def enter(self, *, as_worker: bool) -> None:
        """Open the app for one more user."""
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
                    await self._close_resources()
                raise
            self._connected = self._connected or connecting

    async def leave(self, *, as_worker: bool) -> None:
        """Close the app if this was its last user."""
        async with self._changing:
            try:
                if as_worker:
                    await self._leave_lifespan()
            finally:
                # A forked child may leave a block that its parent has entered.
                self._users = max(0, self._users - 1)
                if not self._users:
                    await self._close_resources()

    async def _open(self) -> None:
        if self._storage is None:
            self._storage = real_servers.check(
                storage_here(self._given, timeout=self._own_timeout, require_url=self.settings.requires_url)
            )
        await self._storage.connect()
        for name in sorted(self.tasks.queues()):
            await self.queue(name).connect()
        for one in self.subscriptions:
            source = self.source_of(one.task.queue)
            assert source is not None  # noqa: S101 - it is in the list
            await source.join()
        if self.listeners and not len(self._listening):
            await self._start_listening()
        version = own_version(self.settings.version)
        for cron in self.crons if self.settings.stores_crons else ():
            definition = definition_of(cron.task)
            call = definition.arguments.stored((), {})
            who = f"version {version}" if version else "code"
            options = definition.options_of(definition.options, call)
            queue = self.queue(definition.queue)
            await declare_scheduler(queue, who, definition.name, cron.schedule, call, options)

    async def _start_listening(self) -> None:
        for listener in self.listeners:
            topic = self.topic(listener.topic)
            await topic.connect()
            reader = MessageReader(self.storage, functions_of(topic), listener.patterns)
            # Before the app is open: what is published afterwards must be seen.
            await reader.open("now")
            self._listening.start(serve(listener, reader, decoder_of(listener, topic)))

    async def _close_resources(self) -> None:
        # Forgotten before they are closed. A task that adds a job during the close gets a new queue and not one that is
        # closing.
        queues, self._queues = self._queues, {}
        topics, self._topics = self._topics, {}
        storage, self._storage = self._storage, None
        await self._listening.close()
        async with AsyncExitStack() as closing:  # closes each queue even after a cancellation
            if storage is not None and storage is not self._given:
                closing.push_async_callback(close_owned, storage, _CLOSED)
            for opened in (*queues.values(), *topics.values()):
                closing.push_async_callback(opened.close)
        # A module may keep a queue that it has declared. It works again when the app is opened again.
        for name, queue in queues.items():
            queue.release()
            self._queues.setdefault(name, queue)

    async def _enter_lifespan(self) -> None:
        if self.settings.lifespan is not None and self._open_lifespan is None:
            lifespan = OpenContext(self.settings.lifespan())
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

    # -- the jobs of tasks ----------------------------------------------------------------------------------------

    async def add_call(self, definition: TaskDefinition, call: dict[str, Any], options: JobOptions) -> Job[Any, Any]:
        """Add one job for a stored call; see Enqueuer."""
        task = self.tasks[definition.name]
        options = await self.chain.before_add(task, definition.options_of(options, call))
        try:
            job = await add_prepared(self.queue(definition.queue), definition.name, call, options)
        except SerializationError as error:
            raise definition.arguments.named(error) from None
        return await self._added(task, definition, job)

    async def add_call_and_wait(
        self, definition: TaskDefinition, call: dict[str, Any], options: JobOptions, wait: WaitOptions
    ) -> Any:
        """Add one job for a stored call, and return its result; see Enqueuer."""
        task = self.tasks[definition.name]
        options = await self.chain.before_add(task, definition.options_of(options, call))
        try:
            return await add_prepared_and_wait(
                self.queue(definition.queue),
                definition.name,
                call,
                options,
                partial(self._added, task, definition),
                wait_timeout=wait.wait_timeout,
                revoke_if_abandoned=wait.revoke_if_abandoned,
            )
        except SerializationError as error:
            raise definition.arguments.named(error) from None

    async def collect_added(self, definition: TaskDefinition, deliver: Deliver) -> GrowingCollection:
        """Return a wait for the ends of the jobs of a map; see Enqueuer."""
        return await collect_added(self.queue(definition.queue), deliver)

    async def add_calls(
        self,
        definition: TaskDefinition,
        calls: Sequence[dict[str, Any]],
        options: JobOptions,
        collection: GrowingCollection | None = None,
    ) -> JobBatch[Any, Any]:
        """Add one job for each stored call; see Enqueuer."""
        task = self.tasks[definition.name]
        keyed = [definition.options_of(options, call) for call in calls]
        chosen = [await self.chain.before_add(task, each) for each in keyed]
        rows = [(definition.name, call, given) for call, given in zip(calls, chosen, strict=True)]
        try:
            queue = self.queue(definition.queue)
            jobs = await (queue.add_bulk(rows) if collection is None else add_for_caller(queue, rows, collection))
        except SerializationError as error:
            raise definition.arguments.named(error) from None
        for job in jobs:
            await self._added(task, definition, job)
        return jobs

    async def add_flow(self, call: FlowCall[Any]) -> Job[Any, Any]:
        """Add a call and the calls before it as one flow; see Enqueuer."""
        definition = call.definition
        node = await FlowProducer(self).add(await self._flow_of(call))
        return await self._added(self.tasks[definition.name], definition, node.job)

    async def call_child(self, call: FlowCall[Any], key: str | None) -> Any:
        """Add a call as a child of the workflow's run, and return its result; see Enqueuer."""
        return await call_child(self, call, key, self._flow_of)

    async def _flow_of(self, call: FlowCall[Any]) -> FlowJob:
        definition = call.definition
        keyed = definition.options_of(call.job_options, call.data)
        options = await self.chain.before_add(self.tasks[definition.name], keyed)
        children = [await self._flow_of(child) for child in call.children]
        return FlowJob(definition.name, definition.queue, call.data, options, children, call.policy)

    async def _added(self, task: AnyTask, definition: TaskDefinition, job: Job[Any, Any]) -> Job[Any, Any]:
        if definition.reads_result:
            read_result_as(job, definition.arguments.read_result)
        await self.chain.after_add(task, job)
        return job

    async def find_job(self, definition: TaskDefinition, job_id: str) -> Job[Any, Any]:
        """Return a job of a task; see Enqueuer. Raises JobNotFound."""
        job = await self.queue(definition.queue).get_job(job_id)
        if job is None:
            raise JobNotFound(
                f"queue {definition.queue!r} of task {definition.name!r} has no job {job_id!r}: it was never added, "
                "was removed, or its retention has expired"
            )
        if definition.reads_result:
            read_result_as(job, definition.arguments.read_result)
        return job


_OF_TOPICS: Final = frozenset({"prefix", "serializer", "codecs", "payload_limit", "instrumentation"})


def checked_storage(storage: StorageLike, timeout: float | timedelta | None = None) -> StorageLike:
    """Validate a storage argument early, instead of at its first use. Opens nothing."""
    if storage is not None:
        open_storage(storage, timeout=timeout)
    return storage
