"""The base class of the parts of the operations core. Each group of operations has one module and one base class."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from glidemq_async.functions.settings import Author, Origin
from glidemq_async.ops.actor import Actor
from glidemq_async.ops.audit import AuditLog, Change
from glidemq_async.ops.connections import Connections
from glidemq_async.queues.queue import Queue


class OpsPart:
    """The common base of the parts of the operations core: the connections, the actor and the audit lines."""

    def _begin(self, connections: Connections, actor: Actor) -> None:
        self._connections = connections
        self.actor = actor
        """The person or program that makes the changes."""
        self.audit = AuditLog(connections.system.audit)
        """The audit lines."""

    async def queue(self, name: str) -> Queue[Any, Any]:
        """Return an open queue, always the same object. Raises QueueNotFound, which suggests the nearest name."""
        return await self._connections.queue(name)

    def use(self, queue: Queue[Any, Any]) -> None:
        """Use an open queue with its codecs for the jobs of this queue. It stays open at the end."""
        self._connections.use(queue)

    async def queue_names(self, *, system: bool = False) -> list[str]:
        """Return the names of the queues, sorted, with `system` also the queues of the library itself."""
        return await self._connections.queue_names(system=system)

    @asynccontextmanager
    async def changing(
        self, action: str, queue: str = "", target: str = "", *, reason: str = "", **arguments: object
    ) -> AsyncGenerator[Change]:
        """Write one audit line about the change that the block makes, also if the block raises.

        The line is written before the block, so that every change has one, and replaced after it. The yielded Change
        can be completed, for example with the number of changed jobs. Raises StorageUnavailable before the block.
        """
        change = Change(action, queue, target, arguments, reason)
        entry = await self.audit.begin(self.actor, change)
        try:
            yield change
        except Exception as error:
            change.count = 0
            await self.audit.end(entry, self.actor, change, f"{type(error).__name__}: {error}")
            raise
        await self.audit.end(entry, self.actor, change)

    def _author(self, note: str = "", origin: Origin = "operator") -> Author:
        """Return the actor as the author of a change of settings."""
        return Author(origin, self.actor.name, note)
