"""The base class of the parts of a queue. Each feature of Queue has one module and one base class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeAlias

from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.options.job_options import JobOptions

JobInput: TypeAlias = "tuple[str, Data] | tuple[str, Data, JobOptions]"
"""The form of one job in `add_bulk`."""


class QueuePart(ABC, Generic[Data, Result]):
    """A part of Queue. It has the client, and connects before the first call."""

    _client: QueueClient

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._client.queue

    @abstractmethod
    async def connect(self) -> None:
        """Connect and check the stored queue. Idempotent; every other method connects when needed."""
