"""The functions of layout 1, and a separate server for tests that leave queues of layout 1 behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from glidemq_async.storage import Storage, open_storage
from tests.migration.old_queue import layout1_functions
from tests.support import servers
from tests.support.stores import RunningStore, endpoint_of


@pytest.fixture
async def layout1(store: RunningStore) -> AsyncIterator[None]:
    """The functions of layout 1 are loaded on the store of this test."""
    async with layout1_functions(store):
        yield


@pytest.fixture
async def own() -> AsyncIterator[tuple[Storage, RunningStore]]:
    """A server of this test alone, with the functions of layout 1."""
    async with servers.standalone() as server, open_storage(server.url) as storage:
        store = RunningStore("redis", server.url, (endpoint_of(server),))
        async with layout1_functions(store):
            yield storage, store
