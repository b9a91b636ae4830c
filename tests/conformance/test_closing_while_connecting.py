"""A connection attempt that is cancelled at any moment leaves no socket behind."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from glidemq_async.storage import open_storage
from glidemq_async.storage.redis.server import ServerStorage, servers_of
from glidemq_async.storage.redis.wire import Wire
from tests.support.helpers import PATIENCE
from tests.support.leak_check import held
from tests.support.stores import RunningStore

ATTEMPTS = 300


@pytest.mark.everywhere
async def test_an_attempt_cancelled_at_any_moment_leaves_no_socket_open(store: RunningStore) -> None:
    async with open_storage(store.url) as storage:
        assert isinstance(storage, ServerStorage)
        node = await servers_of(storage).find_node("q")
        (await node.dial()).drop("measured")
        await asyncio.sleep(0)
        gc.collect()
        before = held().sockets
        gc.disable()  # a collection would close the sockets that were left open
        try:
            draw = random.Random(7)
            cancelled = sum([await _cancel(asyncio.ensure_future(node.dial()), draw) for _ in range(ATTEMPTS)])
            # The loop closes a socket some turns after its attempt was cancelled.
            async with asyncio.timeout(PATIENCE):
                while held().sockets - before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
        assert 0 < cancelled < ATTEMPTS


async def _cancel(attempt: asyncio.Future[Wire], draw: random.Random) -> bool:
    """Cancel an attempt after some turns of the loop; return False if it had ended."""
    for _ in range(draw.randint(0, 60)):
        await asyncio.sleep(0 if draw.random() < 0.8 else draw.random() * 0.0005)
        if attempt.done():
            break
    ended = not attempt.cancel()
    await asyncio.wait([attempt])
    if not attempt.cancelled():
        (await attempt).drop("not needed")
    return not ended
