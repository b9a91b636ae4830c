"""The queues of a service: one storage, each queue opened when it is first asked for, all closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.instrumentation import Instrumentation
from glidemq_async.options.job_options import JobOptions
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.queue import Mode, Queue
from glidemq_async.storage import Storage
from glidemq_async.storage.urls import storage_here
from glidemq_async.tasks.app import GlideMQ

# Any: one service has queues of many types, and each place that asks for one says which it is.
AnyQueue: TypeAlias = Queue[Any, Any]

# Any: the state of the app's lifespan.
Place: TypeAlias = "str | Storage | GlideMQ[Any] | None"
"""Where the queues of a service live: a storage as for Queue, or an app."""


class QueueOptions(TypedDict, total=False):
    """What a queue can be told besides its name and its storage; see Queue."""

    mode: Mode | None
    default_options: JobOptions | None
    serializer: Serializer | None
    codecs: Sequence[Codec]
    payload_limit: int | None
    instrumentation: Sequence[Instrumentation]


class Queues:
    """The queues of a service on one storage, whose connections they share.

    An async context manager: it connects when it is entered, so a service that cannot reach its storage does not
    start, and when it is left it sends the adds that wait and closes. `storage` is a URL, a Storage (which stays
    open, and is cloned where another event loop uses it), or None as for Queue; or a GlideMQ app, which is opened and
    closed, and whose queues these are. Raises what `Queue.connect` raises, and TypeError for a `prefix` beside an app,
    which has its own.
    """

    def __init__(self, storage: Place = None, *, prefix: str | None = None) -> None:
        if isinstance(storage, GlideMQ) and prefix is not None:
            raise TypeError(f"prefix={prefix!r} beside an app, which has a prefix of its own: GlideMQ(prefix=...)")
        self._app = storage if isinstance(storage, GlideMQ) else None
        self._where = None if isinstance(storage, GlideMQ) else storage
        self._prefix = DEFAULT_PREFIX if prefix is None else prefix
        self._storage: Storage | None = None
        self._queues: dict[str, AnyQueue] = {}

    @property
    def storage(self) -> Storage:
        """Where the queues live. Raises RuntimeError before they are entered and after they were left."""
        if self._storage is None:
            raise RuntimeError("the queues of this service are not open: enter them with the app's lifespan")
        return self._storage

    def get(self, name: str, **options: Unpack[QueueOptions]) -> AnyQueue:
        """Return the queue of this name; the first call makes it, and its options hold.

        Raises ValueError for a bad name, and TypeError for options of a queue of an app, which gives its own to all.
        """
        if self._app is not None:
            if options:
                raise TypeError(f"the options of queue {name!r} are those of its app: found {', '.join(options)}")
            _ = self.storage  # open
            return self._app.queue(name)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name, self.storage, prefix=self._prefix, **options)
        return queue

    async def __aenter__(self) -> Self:
        if self._app is not None:
            if self._storage is None:
                await self._app.enter(as_worker=False)
                self._storage = self._app.storage
        elif self._storage is None:
            storage = storage_here(self._where)
            try:
                await storage.connect()
            except BaseException:
                await self._close(storage)
                raise
            self._storage = storage
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        storage, self._storage = self._storage, None
        queues, self._queues = self._queues, {}
        if self._app is not None:
            if storage is not None:
                await self._app.leave(as_worker=False)
            return
        try:
            await asyncio.gather(*(queue.close() for queue in queues.values()))
        finally:
            if storage is not None:
                await self._close(storage)

    async def _close(self, storage: Storage) -> None:
        if storage is not self._where:
            await storage.close()
