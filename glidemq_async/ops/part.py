"""The base class of the parts of the operations core. Each group of operations has one module and one base class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any

from glidemq_async.functions.settings import Author, Origin
from glidemq_async.ops.actor import Actor
from glidemq_async.ops.audit import Change
from glidemq_async.queues.queue import Queue


class OpsPart(ABC):
    """A part of Ops. It has the actor, finds queues, and writes audit lines."""

    actor: Actor

    @abstractmethod
    async def queue(self, name: str) -> Queue[Any, Any]:
        """Return an open queue. Raises QueueNotFound."""

    @abstractmethod
    def changing(
        self, action: str, queue: str = "", target: str = "", *, reason: str = "", **arguments: object
    ) -> AbstractAsyncContextManager[Change]:
        """Write one audit line about the change that the block makes."""

    def _author(self, note: str = "", origin: Origin = "operator") -> Author:
        """Return the actor as the author of a change of settings."""
        return Author(origin, self.actor.name, note)
