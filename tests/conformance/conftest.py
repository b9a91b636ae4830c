"""Fixtures that give tests the function library, and a worker whose calls they make one by one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from glidemq_async.functions.callers import Functions
from glidemq_async.storage import Storage
from glidemq_async.stored.names import QueueKeys
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyQueue
from tests.support.idle_worker import IdleWorker
from tests.support.stores import RunningStore


@pytest.fixture
async def functions(queue: AnyQueue, storage: Storage) -> Functions:
    """The callers of the queue's functions. The queue is open."""
    await queue.connect()
    caller = Functions(storage, QueueKeys("glide", queue.name).base)
    await caller.queue.open(None)
    return caller


@pytest.fixture
async def fake_worker(queue: AnyQueue, store: RunningStore) -> AsyncIterator[FakeWorker]:
    """A worker that makes its calls on request. At the end it releases its jobs."""
    made = FakeWorker(queue, store)
    yield made
    await made.leave()


@pytest.fixture
async def idle_worker(queue: AnyQueue, store: RunningStore) -> AsyncGenerator[IdleWorker]:
    """A worker that listens and has not called yet."""
    await queue.connect()
    worker = IdleWorker(queue, store)
    async with worker.listening():
        yield worker
    await worker.leave()
