from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from glidemq_async.storage import Endpoint, RedisStorage
from tests.storage.small_library import LIBRARY
from tests.support.servers import Server, standalone


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with standalone() as running:
        yield running


@pytest.fixture
async def storage(server: Server) -> AsyncIterator[RedisStorage]:
    async with RedisStorage(Endpoint("127.0.0.1", server.port), library=LIBRARY) as opened:
        yield opened
