"""What the parts of a queue stand on: each feature of Queue has a module of its own and is a base class of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeAlias

from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.options.job_options import JobOptions

JobInput: TypeAlias = "tuple[str, Data] | tuple[str, Data, JobOptions]"
"""What `add_bulk` takes for one job."""


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
