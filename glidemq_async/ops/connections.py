"""The connections of an operations core: the storage, its queues, and the calls to the queue `system/ops`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from glidemq_async.errors import IncompatibleQueueError
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.functions.callers import Functions
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.queues.internals import observing
from glidemq_async.queues.listing import list_queues
from glidemq_async.queues.queue import Queue
from glidemq_async.storage import Storage, StorageLike, open_storage
from glidemq_async.stored.names import ALERT_QUEUE, SYSTEM_QUEUE, QueueKeys
from glidemq_async.tasks.app import GlideMQ, core_of

Part = TypeVar("Part")
NAMES_SECONDS: Final = 5.0
"""Seconds for which the list of queues is used again."""
NAMES_SHARE: Final = 0.05
"""Largest share of the time that is spent on reading the list of queues. A server with millions of keys reaches it."""


@runtime_checkable
class _Closing(Protocol):
    async def close(self) -> None: ...


class Connections:
    """The open queues of one prefix, shared by all actors."""

    def __init__(self, storage: StorageLike, prefix: str, app: GlideMQ[Any] | None) -> None:
        self.app = app
        self._owned = app is None and not isinstance(storage, Storage)
        self.storage: Storage = open_storage(storage) if app is None else app.storage
        self.prefix = prefix if app is None else str(core_of(app).settings.shared["prefix"])
        self.system = Functions(self.storage, QueueKeys(self.prefix, SYSTEM_QUEUE).base)
        """The calls to the queue `system/ops`, which need not be open."""
        self.alerts = Functions(self.storage, QueueKeys(self.prefix, ALERT_QUEUE).base)
        """The calls to the queue `system/alerts`, which need not be open."""
        self._queues: dict[str, Queue[Any, Any]] = {}
        self._system_queues: dict[str, Queue[Any, Any]] = {}
        self._given: set[str] = set()
        self._opening = asyncio.Lock()
        self._naming = asyncio.Lock()
        self._names: tuple[float, list[str]] = (0.0, [])
        self._parts: dict[type, object] = {}

    def part(self, kind: Callable[[Connections], Part]) -> Part:
        """Return the only object of this class, which all actors share. Its `close`, if it has one, is called."""
        found = self._parts.get(cast("type", kind))
        if found is None:
            found = self._parts[cast("type", kind)] = kind(self)
        return cast("Part", found)

    async def open(self) -> None:
        """Connect. Idempotent."""
        await self.storage.connect()

    async def close(self) -> None:
        """Close the queues and the storage that were opened here. Idempotent."""
        parts, self._parts = self._parts, {}
        for part in parts.values():
            if isinstance(part, _Closing):
                await part.close()
        queues, self._queues = self._queues, {}
        for name, queue in queues.items():
            if name not in self._given:
                await queue.close()
        system_queues, self._system_queues = self._system_queues, {}
        for queue in system_queues.values():
            await queue.close()
        if self._owned:
            await self.storage.close()

    async def queue(self, name: str) -> Queue[Any, Any]:
        """Return an open queue. Raises QueueNotFound."""
        known = self._queues.get(name)
        if known is not None:
            return known
        async with self._opening:
            if name not in self._queues:
                self._queues[name] = await self._opened(name)
        return self._queues[name]

    def use(self, queue: Queue[Any, Any]) -> None:
        """Use an open queue, which stays open at the end."""
        self._queues[queue.name] = queue
        self._given.add(queue.name)

    async def readable_queues(self, names: Iterable[str]) -> list[Queue[Any, Any]]:
        """Return these queues, open, without the ones that cannot be read or that were removed."""
        found: list[Queue[Any, Any]] = []
        for name in names:
            try:
                found.append(await self.queue(name))
            except (IncompatibleQueueError, QueueNotFound):
                continue
        return found

    async def _opened(self, name: str) -> Queue[Any, Any]:
        await self.open()
        if not await self.calls_of(name).queue.exists():
            raise QueueNotFound(name, await self.known_names())
        if self.app is None:
            queue = Queue[Any, Any](name, self.storage, prefix=self.prefix)
        else:
            # Not the queue of the app: an operator who looks at a queue must not let this process fire its schedulers.
            queue = core_of(self.app).separate_queue(name)
        await observing(queue).connect()
        return queue

    def calls_of(self, name: str) -> Functions:
        """Return calls to a queue that need not be open. Raises ValueError for a bad name."""
        return Functions(self.storage, QueueKeys(self.prefix, name).base)

    async def searched_queues(self, plan: FilterPlan, *, known: bool = False) -> list[str]:
        """Return the names of the queues in which a filter can find jobs. `known` permits names of `known_names`.

        Raises QueueNotFound if the filter names one queue that does not exist.
        """
        if plan.only_queue is None:
            names = await (self.known_names() if known else self.queue_names())
            return [name for name in names if plan.may_be_in(name)]
        # One call instead of a scan of all store keys.
        await self.queue(plan.only_queue)
        return [plan.only_queue] if plan.may_be_in(plan.only_queue) else []

    async def queue_names(self, *, system: bool = False) -> list[str]:
        """Return the names of the queues."""
        await self.open()
        began = time.monotonic()
        names = await list_queues(self.storage, prefix=self.prefix, system=system)
        if not system:
            used = time.monotonic() - began
            self._names = began + max(NAMES_SECONDS, used / NAMES_SHARE), names
        return names

    async def known_names(self) -> list[str]:
        """Return the names of the queues, 5 seconds old at most, or older if reading them is slow."""
        async with self._naming:
            until, names = self._names
            return names if names and time.monotonic() < until else await self.queue_names()

    async def open_system_queue(self, name: str = SYSTEM_QUEUE) -> None:
        """Create a queue of the library itself if it does not exist, before a function adds a job to it."""
        if name not in self._system_queues:
            queue = Queue[Any, Any](name, self.storage, prefix=self.prefix)
            await queue.connect()
            self._system_queues[name] = queue
