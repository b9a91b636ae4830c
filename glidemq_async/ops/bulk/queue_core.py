"""The operations core of one open queue, for `Queue.operation`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from glidemq_async.ops.core import Ops
from glidemq_async.queues.base import QueuePart
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.operations import OperationCore
from glidemq_async.queues.queue import Queue


@asynccontextmanager
async def open_core(queue: QueuePart[Any, Any]) -> AsyncGenerator[OperationCore]:
    """Open an operations core that uses a queue with its codecs and its storage, which stay open."""
    opened = cast("Queue[Any, Any]", queue)
    await opened.connect()
    async with Ops(opened.storage, prefix=client_of(opened).keys.prefix) as ops:
        ops.use(opened)
        yield ops
