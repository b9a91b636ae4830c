"""A producer for serverless functions: adds jobs with few round trips, and survives being frozen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Generic, Self, TypedDict, Unpack

from glidemq_async._internal.blocking import BlockingContext, blocking
from glidemq_async._internal.generics import Data
from glidemq_async._internal.loops import Home
from glidemq_async.errors import QueueClosed
from glidemq_async.instrumentation import Instrumentation
from glidemq_async.jobs.batch import JobBatch
from glidemq_async.jobs.job import Job
from glidemq_async.options.ids import GeneratedIds
from glidemq_async.options.job_options import JobOptions, JobOptionsDict
from glidemq_async.options.validation import positive_seconds
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.base import JobInput
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import Storage, StorageLike
from glidemq_async.storage.redis.server import ServerStorage, servers_of

MAX_IDLE: Final = 60.0
"""Default of `max_idle` in seconds. Load balancers and NAT gateways drop silent connections after minutes."""
_NO_DATA: Final[Any] = None


class QueueSettings(TypedDict, total=False):
    """The settings that a Producer shares with a Queue."""

    prefix: str
    default_options: JobOptions | None
    serializer: Serializer | None
    codecs: Sequence[Codec]
    payload_limit: int | None
    timeout: float | timedelta | None
    instrumentation: Sequence[Instrumentation]
    ids: GeneratedIds


class ProducerSettings(QueueSettings, total=False):
    """The settings of a Producer besides the queue and its storage."""

    max_idle: float | timedelta


# A serverless function is started, frozen after its reply, thawed minutes later, and killed without notice. A producer
# has to live with four consequences:
#
# 1. The first add decides the duration of a cold start. The connection is opened by this add, and nothing is asked
#    before it: the server knows the function, or refuses the call without an effect.
# 2. After a freeze the connection may be dead without a sign, because the peer or a gateway has dropped it without a
#    packet. A call on it would wait for seconds. So a connection that was silent for `max_idle` is replaced before the
#    add.
# 3. A connection may also end during an add. The storage sends the call again with its number, and the server executes
#    it once.
# 4. Runtimes often call `asyncio.run` for each event. The loop of the earlier add is then closed, and its connection
#    with it. The producer continues in the new loop with a new connection.
class _LeanQueue(Queue[Data, Any]):
    """A queue that sends adds without opening itself first."""

    _is_lean = True

    def __init__(
        self, name: str, storage: StorageLike, *, owns_storage: bool = False, **settings: Unpack[QueueSettings]
    ) -> None:
        super().__init__(name, storage, **settings)
        self._client.owns_storage = self._client.owns_storage or owns_storage
        # The connections of a storage that the user shares stay as they are.
        own = self._client.storage
        self._servers = servers_of(own) if self._client.owns_storage and isinstance(own, ServerStorage) else None
        if self._servers is not None:
            self._servers.use_lean()

    @property
    def home(self) -> Home:
        """The object that decides the event loop."""
        return self._client.home

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the connection, None before the first add."""
        return self._client.loop

    async def connect(self) -> None:
        """Refuse a closed queue. Connects nothing, because the first call does."""
        if self._closed:
            raise QueueClosed(f"queue {self.name!r} is closed; create a new Producer")

    def drop_connection(self, reason: str) -> None:
        """Replace the connection with the next call."""
        if self._servers is not None:
            self._servers.drop_nodes(reason)


class Producer(Generic[Data]):
    """Adds jobs to one queue, for serverless functions and other short programs. Connects with the first add.

    Creating a producer makes no connection and needs no event loop, so create it once, at the top of the module. The
    first add needs one round trip after the connection is open, one more on a server that has never had the queue or
    the function library. A producer can be frozen together with its process, and can be used in one event loop after
    another.

    - `name`, `storage`, `prefix`, `default_options`, `serializer`, `codecs`, `payload_limit`, `timeout`,
      `instrumentation` and `ids` are the same as for a Queue.
    - `max_idle` is in seconds (default: 60). A connection that was not used for this time is replaced before the next
      add.

    `async with` is optional and only closes the connection. Raises ValueError and TypeError for bad settings.
    """

    def __init__(
        self,
        name: str,
        storage: StorageLike = None,
        *,
        max_idle: float | timedelta = MAX_IDLE,
        **settings: Unpack[QueueSettings],
    ) -> None:
        for unknown in settings.keys() - QueueSettings.__annotations__.keys():
            raise TypeError(f"Producer() got an unexpected keyword argument {unknown!r}")
        self._max_idle = positive_seconds("max_idle", max_idle)
        self._storage = storage
        self._settings = settings
        self._queue = _LeanQueue[Data](name, storage, **self._settings)
        self._calls = 0
        self._used_at = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Producer {self.name!r} on {self._queue.storage.url}>"

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._queue.name

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def sync(self) -> SyncProducer[Data]:
        """The methods for code without an event loop. `producer.sync.add(...)` blocks, in any thread."""
        return SyncProducer(self, self._queue.home)

    async def add(
        self,
        name: str,
        data: Data = _NO_DATA,
        options: JobOptions | None = None,
        **keywords: Unpack[JobOptionsDict],
    ) -> Job[Data, Any]:
        """Add a job. When this returns, it is stored. Takes, returns and raises the same as `Queue.add`."""
        queue = self._ready()
        self._calls += 1
        try:
            return await queue.add(name, data, options, **keywords)
        finally:
            self._calls -= 1
            self._used_at = time.time()

    async def add_bulk(self, jobs: Iterable[JobInput[Data]]) -> JobBatch[Data, Any]:
        """Add many jobs, like `Queue.add_bulk`."""
        queue = self._ready()
        self._calls += 1
        try:
            return await queue.add_bulk(jobs)
        finally:
            self._calls -= 1
            self._used_at = time.time()

    async def close(self) -> None:
        """Wait for adds in flight, and close the connection. Idempotent."""
        self._closed = True
        loop = self._queue.loop
        # The connection of a loop that has ended went with it.
        if loop is None or not loop.is_closed():
            await self._queue.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _ready(self) -> _LeanQueue[Data]:
        """Return the queue for the running loop, without a connection that may be dead."""
        if self._closed:
            raise QueueClosed(f"the producer of queue {self.name!r} is closed; create a new Producer")
        loop = self._queue.loop
        if loop is not None and loop.is_closed() and loop is not asyncio.get_running_loop():
            self._queue, self._calls = self._in_next_loop(), 0
        # This compares the clock of the machine, because the clock of the loop may stop while a virtual machine is
        # frozen. If the clock of the machine is set, a connection is only replaced too early or too late.
        elif not self._calls and self._used_at and abs(time.time() - self._used_at) > self._max_idle:
            self._queue.drop_connection(f"it was not used for {self._max_idle:g} s")
        return self._queue

    def _in_next_loop(self) -> _LeanQueue[Data]:
        given = self._storage
        # A storage that the user has created belongs to the loop that has ended.
        if isinstance(given, Storage):
            return _LeanQueue(self.name, given.clone(), owns_storage=True, **self._settings)
        return _LeanQueue(self.name, given, **self._settings)


class SyncProducer(BlockingContext[Producer[Data]], Generic[Data]):
    """`producer.sync`: the blocking methods of a producer for code without an event loop."""

    add = blocking(Producer[Data].add)
    add_bulk = blocking(Producer[Data].add_bulk)
    close = blocking(Producer[Data].close)
