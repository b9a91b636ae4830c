"""Fixtures that give tests the function library without the public classes."""

from __future__ import annotations

import pytest

from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage
from glidemq_async.stored.names import QueueKeys
from tests.support.helpers import AnyQueue


@pytest.fixture
async def functions(queue: AnyQueue, storage: Storage) -> Functions:
    """The callers of the queue's functions. The queue is open."""
    await queue.connect()
    caller = Functions(storage, QueueKeys("glide", queue.name).base)
    await caller.queue.open(None)
    return caller
