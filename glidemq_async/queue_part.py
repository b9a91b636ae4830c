"""What the parts of a queue stand on: each feature of Queue has a module of its own and is a base class of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from glidemq_async.client import QueueClient
from glidemq_async.generics import Data, Result


class QueuePart(ABC, Generic[Data, Result]):
    """A part of Queue: it has the client, and connects before the first call."""

    _client: QueueClient

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._client.queue

    @abstractmethod
    async def connect(self) -> None:
        """Connect and check the stored queue; idempotent. Every other method does it when needed."""
