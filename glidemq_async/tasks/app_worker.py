"""The workers of an app in one process: one per queue, with one lifespan around all of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

from typing_extensions import override

from glidemq_async._internal.waits import together
from glidemq_async.errors import GlideMQError
from glidemq_async.queues.declared_limits import declare_limits
from glidemq_async.queues.finding import describe_tasks
from glidemq_async.stored.record import WAITING
from glidemq_async.tasks.core import AppCore
from glidemq_async.tasks.routing import TaskExecutor
from glidemq_async.tasks.scopes import WorkerScope
from glidemq_async.worker.lifecycle import Runs
from glidemq_async.worker.listeners import Listener, WorkerEvent
from glidemq_async.worker.options import WorkerOptions, own_version
from glidemq_async.worker.pool import WorkerPool
from glidemq_async.worker.worker import Worker, feed_from, feed_now

__all__ = ["AppWorker"]

_log = logging.getLogger(__name__)
DEFAULT_CONCURRENCY: Final = 100


# A Worker claims from one queue, so an app needs one for each of its queues. They share the app's storage and the
# values of dependencies with the scope "worker". `concurrency` applies to each queue: a queue with slow jobs must not
# occupy the slots of another one.
#
# If one of the workers cannot continue, the others stop too. A process that serves only some of its queues would look
# healthy to its supervisor.
class AppWorker(Runs):
    """Runs the tasks of an app, one Worker per queue. Created by `mq.worker`.

    `await worker.run()` works until SIGTERM, SIGINT or `stop()`. `async with worker` works in the background of the
    block. The lifespan of the app is entered before the first job and left after the last one. With `until_empty`, all
    queues are checked again until none has a job that could start, because the jobs of one queue may add to another.

    `start` opens the app, enters its lifespan, upserts its crons and stores its declared limits, and then starts the
    workers. If the lifespan raises, `start` raises the same and leaves nothing open. If a worker cannot start, this
    worker is closed. `close` leaves the lifespan after the last worker has closed.

    With `warm=False` an executor starts with its first job instead of with the worker. Used by the test tools.
    """

    def __init__(
        self, app: AppCore, queues: Sequence[str] | None, options: WorkerOptions, *, warm: bool = True
    ) -> None:
        super().__init__(handle_signals=options.handle_signals)
        app.settings.included.load()
        self._app = app
        self._warm = warm
        self._names = _chosen(app, queues)
        self._scope = WorkerScope(app.overrides)
        # The app handles signals and probes once for all its workers.
        shared = replace(
            options,
            concurrency=options.concurrency or DEFAULT_CONCURRENCY,
            payload_limit=options.payload_limit or app.settings.shared.get("payload_limit"),
            version=app.settings.version if options.version is None else options.version,
            handle_signals=False,
            health_port=None,
        )
        self._version = own_version(shared.version)
        self._workers = [self._worker(name, shared) for name in self._names]
        self._pool = WorkerPool(self._workers, handle_signals=False, health_port=options.health_port)
        self._still_open = set(self._workers)
        for worker in self._workers:
            worker.on("closing", partial(self._break_off_with, worker))
            worker.on("closed", partial(self._note_closed, worker))
        self._open = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<AppWorker of {', '.join(self._names)}>"

    def _note_closed(self, worker: Worker[Any, Any]) -> None:
        # An operator can stop each of them.
        self._still_open.discard(worker)
        if not self._still_open:
            self.stop()

    def pause(self) -> None:
        """Claim no more jobs in any queue until `resume`; see `Worker.pause`."""
        for worker in self._workers:
            worker.pause()

    def resume(self) -> None:
        """End the pause of the workers."""
        for worker in self._workers:
            worker.resume()

    def set_concurrency(self, concurrency: int) -> None:
        """Change the number of jobs of each queue that run at the same time; see `Worker.set_concurrency`."""
        for worker in self._workers:
            worker.set_concurrency(concurrency)

    @property
    def workers(self) -> Sequence[Worker[Any, Any]]:
        """The workers, one per queue."""
        return self._workers

    def on(self, event: WorkerEvent, listener: Listener) -> None:
        """Call `listener` at an event of any of the workers, like `Worker.on`."""
        for worker in self._workers:
            worker.on(event, listener)

    def _worker(self, name: str, options: WorkerOptions) -> Worker[Any, Any]:
        app = self._app
        executor = TaskExecutor(
            app.tasks,
            app.chain,
            self._scope,
            app.overrides,
            queue=name,
            concurrency=options.concurrency or DEFAULT_CONCURRENCY,
            unknown_grace=app.settings.unknown_task_grace,
            default=options.executor,
            warm=self._warm,
        )
        settings = {key: value for key, value in app.shared_of(name).items() if key != "payload_limit"}
        options = replace(options, executor=executor)
        worker = Worker[Any, Any](name, executor.handler, app.storage, options=options, **settings)
        if (source := app.source_of(name)) is not None:
            feed_from(worker, source)
        return worker

    @override
    def stop(self, *, immediately: bool = False) -> None:
        super().stop()
        self._pool.stop(immediately=immediately)

    @override
    async def _run_until_empty(self) -> None:
        while not self._stop_requested.is_set():
            # A job of one queue may add to another queue that was already found empty, so the queues are checked again
            # together.
            await together(worker.until_empty() for worker in self._workers)
            if len(self._workers) == 1 or not await self._anything_left():
                return

    async def _anything_left(self) -> bool:
        """Return whether a queue has received jobs from another queue after its own worker had found it empty."""
        for worker in self._workers:
            await feed_now(worker)  # a job of another queue may have published
            queue = self._app.queue(worker.queue)
            counts = await queue.get_job_counts()
            if worker.running or (any(counts[state] for state in WAITING) and not await queue.is_paused()):
                return True
        return False

    @override
    async def _start(self) -> None:
        # If a step fails, the stack undoes the steps before it, in the opposite order. The order is a dependency: the
        # pool uses the scope, the scope may use the lifespan, and all of them use the storage of the app.
        async with AsyncExitStack() as opening:
            await self._app.enter(as_worker=True)
            opening.push_async_callback(self._app.leave, as_worker=True)
            opening.push_async_callback(self._scope.close)
            # Before the pool: a signal that stops the worker may come as soon as the first job can run.
            await self._describe_tasks()
            await self._declare_limits()
            try:
                await self._pool.start()
            except BaseException:  # the pool has closed its workers, which cannot start again
                self._closed = True
                raise
            opening.push_async_callback(self._pool.close)
            self._open = opening.pop_all()

    async def _describe_tasks(self) -> None:
        # Only tools read the descriptions, so a worker starts without them, for example on a server without memory.
        for name in self._names:
            try:
                await describe_tasks(self._app.queue(name), self._app.tasks.parameters(name))
            except GlideMQError as error:
                _log.warning("tools cannot name the arguments of the jobs of queue %s: %s", name, error)

    async def _declare_limits(self) -> None:
        # Before the first claim, and an error stops the start: a worker without its limits could overload others.
        self._app.limits.warn_of_unserved(self._app.tasks.queues())
        for worker in self._workers:
            who = f"version {self._version}" if self._version else worker.name
            await declare_limits(self._app.queue(worker.queue), who, self._app.limits.of(worker.queue))

    @override
    async def _close(self) -> None:
        await self._open.aclose()
        # Workers that never started have opened nothing: they use the storage of the app.
        await self._pool.close()


def _known_queues(app: AppCore) -> Collection[str]:
    known = app.tasks.queues()
    if not known:
        raise ValueError(
            "this app has no tasks; name the modules that declare them in GlideMQ(include=[...]), or import them "
            "before you create its worker (see docs/project-layout.md)"
        )
    return known


def _chosen(app: AppCore, queues: Sequence[str] | None) -> list[str]:
    if isinstance(queues, str):
        raise TypeError(f"queues must be a list of names, got {queues!r}")
    known = _known_queues(app)
    chosen = sorted(known) if queues is None else list(dict.fromkeys(queues))
    for name in chosen:
        if name not in known:
            raise ValueError(
                f"no task of this app belongs to queue {name!r}; its queues are {', '.join(sorted(known))}"
            )
    if not chosen:
        raise ValueError("queues must not be empty; pass None for all queues of the app")
    return chosen
