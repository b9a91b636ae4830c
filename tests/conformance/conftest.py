"""What several of these tests ask the function library with, past the public classes."""

from __future__ import annotations

import pytest

from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage
from glidemq_async.stored.names import QueueKeys
from tests.support.helpers import AnyQueue


@pytest.fixture
async def functions(queue: AnyQueue, storage: Storage) -> Functions:
    """Callers of the queue's functions; the queue is open."""
    await queue.connect()
    caller = Functions(storage, QueueKeys("glide", queue.name).base)
    await caller.open_queue(None)
    return caller
