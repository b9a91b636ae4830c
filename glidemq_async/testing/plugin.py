"""The pytest plugin: fixtures with a private server and a movable clock, and a guard against real servers.

An entry point registers the plugin, so installing the library is enough. With pytest-asyncio the fixtures run in the
loop of the test; otherwise anyio's plugin runs them. A plain test function needs neither plugin.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from glidemq_async.storage import MemoryStorage
from glidemq_async.tasks import real_servers
from glidemq_async.testing.clock import MovableClock
from glidemq_async.testing.harness import Harness

try:
    import pytest_asyncio as fixtures
except ModuleNotFoundError:
    fixtures = pytest  # type: ignore[misc] # the same decorator; anyio's plugin runs the fixtures


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting of the plugin."""
    about = "let the apps of all tests connect to real servers (glidemq_async)"
    parser.addini("glidemq_real_servers", about, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of the plugin."""
    config.addinivalue_line("markers", "glidemq_real_server: the apps of this test may connect to a real server")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse real servers to apps while a test and its fixtures run."""
    if item.config.getini("glidemq_real_servers") or item.get_closest_marker("glidemq_real_server"):
        return (yield)
    with real_servers.refused():
        return (yield)


@fixtures.fixture
async def glidemq() -> AsyncIterator[Harness]:
    """A harness with a private server, its clock, `drain` and assertions. Plain tests use its `sync`."""
    async with Harness() as harness:
        yield harness


def _glidemq_of_plain_tests() -> Iterator[Harness]:
    with Harness() as harness:
        yield harness


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Provide a harness to a plain test, which has no event loop and no plugin for one."""
    function = fixturedef.func
    if getattr(function, "__module__", "") != __name__ or fixturedef.argname != "glidemq" or _is_awaited(request.node):
        return (yield)
    # Only during the setup of this one fixture: the definition is shared by all tests, and a coroutine test may come
    # next.
    vars(fixturedef)["func"] = _glidemq_of_plain_tests
    try:
        return (yield)
    finally:
        vars(fixturedef)["func"] = function


def _is_awaited(test: object) -> bool:
    function: object = getattr(test, "obj", None)
    # hypothesis wraps a coroutine function in a plain one; the inner function is awaited.
    function = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return inspect.iscoroutinefunction(function)


@pytest.fixture
def glidemq_storage(glidemq: Harness) -> MemoryStorage:
    """The storage of the test's harness; pass it to the code under test."""
    return glidemq.storage


@pytest.fixture
def glidemq_clock(glidemq: Harness) -> MovableClock:
    """The clock of the test's harness."""
    return glidemq.clock
