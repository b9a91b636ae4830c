"""The queues of a web service: one storage; each queue opens at its first use, and all close together."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

from glidemq_async._internal.waits import finish_all
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.instrumentation import Instrumentation
from glidemq_async.options.ids import GeneratedIds
from glidemq_async.options.job_options import JobOptions
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.queue import Mode, Queue
from glidemq_async.storage import Storage, StorageLike
from glidemq_async.storage.urls import storage_here
from glidemq_async.tasks.app import GlideMQ, core_of

# Any: one service has queues of many types, and each caller states the type of its queue.
AnyQueue: TypeAlias = Queue[Any, Any]

# Any: the state of the app's lifespan.
StorageOrApp: TypeAlias = "StorageLike | GlideMQ[Any]"
"""The storage of the queues of a service: a value as for Queue, or a GlideMQ app."""


class QueueOptions(TypedDict, total=False):
    """The options of a queue except its name and storage; see Queue.

    The queues share the connections of one storage, so the timeout of calls is an option of its URL (`?timeout=`).
    """

    mode: Mode | None
    default_options: JobOptions | None
    serializer: Serializer | None
    codecs: Sequence[Codec]
    payload_limit: int | None
    instrumentation: Sequence[Instrumentation]
    ids: GeneratedIds


class Queues:
    """The queues of a service on one storage, whose connections they share.

    An async context manager. It connects on entry, so a service that cannot reach its storage does not start. On exit
    it sends pending adds and closes. `storage` is a URL, a Storage, None as for Queue, or a GlideMQ app. A Storage
    stays open, and it is cloned if another event loop uses it. An app is opened and closed, and it provides the
    queues. Raises the errors of `Queue.connect`, and TypeError for a `prefix` together with an app.
    """

    def __init__(self, storage: StorageOrApp = None, *, prefix: str | None = None) -> None:
        if isinstance(storage, GlideMQ) and prefix is not None:
            raise TypeError(f"prefix={prefix!r} cannot be combined with an app; set it there: GlideMQ(prefix=...)")
        self._app = storage if isinstance(storage, GlideMQ) else None
        self._where = None if isinstance(storage, GlideMQ) else storage
        self._prefix = DEFAULT_PREFIX if prefix is None else prefix
        self._storage: Storage | None = None
        self._queues: dict[str, AnyQueue] = {}

    @property
    def storage(self) -> Storage:
        """The storage of the queues. Raises RuntimeError outside of the context."""
        if self._storage is None:
            raise RuntimeError("the queues of this service are not open; enter them in the lifespan of the web app")
        return self._storage

    def get(self, name: str, **options: Unpack[QueueOptions]) -> AnyQueue:
        """Return the queue of this name. The first call creates it, and its options apply.

        Raises ValueError for an invalid name, and TypeError for options if the queues come from an app.
        """
        if self._app is not None:
            if options:
                found = ", ".join(options)
                raise TypeError(f"queue {name!r} takes its options from the app; set {found} on GlideMQ instead")
            _ = self.storage  # open
            return self._app.queue(name)
        # Nothing is connected here, so endpoints get a queue without an await. The storage is connected already, and
        # the queue opens with its first call.
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name, self.storage, prefix=self._prefix, **options)
        return queue

    async def __aenter__(self) -> Self:
        if self._app is not None:
            if self._storage is None:
                await core_of(self._app).enter(as_worker=False)
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
        # Forgotten before the first await, so that requests that still arrive get the RuntimeError of `storage` and no
        # queue that is being closed.
        storage, self._storage = self._storage, None
        queues, self._queues = self._queues, {}
        if self._app is not None:
            if storage is not None:
                await core_of(self._app).leave(as_worker=False)
            return
        try:
            # The queues before the storage: closing a queue sends its waiting adds.
            await finish_all(queue.close() for queue in queues.values())
        finally:
            if storage is not None:
                await self._close(storage)

    async def _close(self, storage: Storage) -> None:
        # A Storage of the user stays open, because others may use it. A clone of it, or the storage of a URL, belongs
        # to this object.
        if storage is not self._where:
            await storage.close()
