"""The pytest plugin: a fresh server with a movable clock for each test that asks for one.

Registered as an entry point, so that installing the library is enough. With pytest-asyncio the fixtures run in the loop
of the test; without it anyio's plugin runs them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from glidemq_async.storage import MemoryStorage
from glidemq_async.testing.clock import MovableClock
from glidemq_async.testing.harness import Harness

try:
    import pytest_asyncio as fixtures
except ModuleNotFoundError:
    fixtures = pytest  # type: ignore[misc] # the same decorator, left to anyio's plugin


@fixtures.fixture
async def glidemq() -> AsyncIterator[Harness]:
    """A harness: a server of the test's own, its clock, `drain` and assertions."""
    async with Harness() as harness:
        yield harness


@pytest.fixture
def glidemq_storage(glidemq: Harness) -> MemoryStorage:
    """The storage of the test's harness, to be given to the code under test."""
    return glidemq.storage


@pytest.fixture
def glidemq_clock(glidemq: Harness) -> MovableClock:
    """The clock of the test's harness."""
    return glidemq.clock
