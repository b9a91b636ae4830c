"""Fixtures and checks for every test: stores to run on, and a check that a test leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import inspect
import warnings
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.storage import MemoryStorage, Storage, open_storage
from tests.support import stores as all_stores
from tests.support.clocked_queue import Timed
from tests.support.clocked_queue import timed as timed_queue
from tests.support.leak_check import Resources, held, late_errors, left_since, tasks_left, verify
from tests.support.servers import redis7_binary
from tests.support.stores import RunningStore, RunningStores

REDIS7_SHARE = 4
"""One of this many tests that run on two stores uses the older server in each run, and the others use it at night."""
IN_TURN = ("redis", "unix", "file", "sentinel")
"""Stores that differ only in how the client connects. A test that runs everywhere uses one of them in each run, and the
others at night."""
PARAMETERS_SHARE = 6
"""A test that runs everywhere uses all its sets of parameters on the embedded store. On the others, and in the short
selection, it uses one of this many sets in each run, and the others at night."""
_HELD = pytest.StashKey[Resources]()
_ENDED = pytest.StashKey[deque[str]]()
_MARKS = {"redis7": pytest.mark.redis7, "cluster": pytest.mark.cluster, "sentinel": pytest.mark.sentinel}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "everywhere: runs on every kind of storage, and not only on two of them")
    config.addinivalue_line("markers", "only_on(*names): runs on these storages")
    config.addinivalue_line("markers", "untidy: deliberately leaves the data of a worker that died")


def pytest_collection_finish() -> None:
    # The collected tests are half a million objects that stay until the end. No later collection visits them.
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only_on")
    everywhere = metafunc.definition.get_closest_marker("everywhere")
    names = only.args if only else all_stores.EVERYWHERE if everywhere else all_stores.ON_TWO
    number = zlib.crc32(metafunc.definition.nodeid.encode())
    nightly: set[str] = set()
    if everywhere:
        nightly = {*IN_TURN} - {IN_TURN[number % len(IN_TURN)]}
    elif number % REDIS7_SHARE:
        nightly = {"redis7"}
    params: list[object] = []
    for name in names:
        marks = [_MARKS[name]] if name in _MARKS else []
        marks += [pytest.mark.slow] if name in nightly and not only else []
        params.append(pytest.param(name, marks=marks))
    metafunc.parametrize("store", params, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[tuple[str, object]] = Counter()
    for item in items:
        if not (isinstance(item, pytest.Function) and "store" in item.fixturenames):
            continue
        if item.get_closest_marker("everywhere") is None:
            continue
        store = item.callspec.params["store"]
        kind = (f"{item.path}::{item.originalname}", store)
        is_used = seen[kind] % PARAMETERS_SHARE == 0
        seen[kind] += 1
        if store == "memory" and is_used:
            # Tests that run everywhere are also the short selection, on the storage that starts fastest.
            item.add_marker(pytest.mark.smoke)
        elif store != "memory" and not is_used:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def stores() -> Iterator[RunningStores]:
    """The stores of this test process."""
    opened = RunningStores()
    yield opened
    opened.close()


@pytest.fixture
def store(request: pytest.FixtureRequest, stores: RunningStores) -> Iterator[RunningStore]:
    """The store of this test; pytest runs the test once per store. At the end all data is deleted."""
    if request.param == "redis7" and redis7_binary() is None:
        pytest.skip("no redis-server on the PATH: install Debian's redis-server, or set GLIDEMQ_TEST_REDIS7")
    yield stores.get(request.param)
    if "storage" not in request.fixturenames:  # `storage` has deleted the data
        stores.clear(request.param)


@pytest.fixture
async def storage(store: RunningStore, request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    """A storage of this test. At the end every queue in it must be sound, and then all data is deleted."""
    untidy = request.node.get_closest_marker("untidy") is not None
    try:
        async with open_storage(store.url) as opened:
            yield opened
            await verify(opened, store, workers_gone=not untidy)
    finally:
        await store.command("FLUSHALL")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A queue name that no other test uses."""
    return "q-" + hashlib.sha1(request.node.nodeid.encode()).hexdigest()[:12]


@pytest.fixture
async def queue(storage: Storage, name: str) -> AsyncIterator[Queue[Any, Any]]:
    """An open queue."""
    async with Queue[Any, Any](name, storage) as opened:
        yield opened


@pytest.fixture(scope="session")
def clocked_server(stores: RunningStores) -> RunningStore:
    """The server of this test process whose clock the tests move."""
    return stores.get(all_stores.CLOCKED)


@pytest.fixture
async def timed(name: str, clocked_server: RunningStore, request: pytest.FixtureRequest) -> AsyncIterator[Timed]:
    """An open queue on an empty server whose clock the test can move. At the end it must be sound."""
    untidy = request.node.get_closest_marker("untidy") is not None
    async with MemoryStorage(clocked_server.name, testing=True) as opened:
        made = timed_queue(opened, name)
        try:
            async with made.queue:
                yield made
            await verify(opened, clocked_server, workers_gone=not untidy)
        finally:
            await made.clock.reset()
            await clocked_server.command("FLUSHALL")


@pytest.fixture
async def timed_alone(name: str, request: pytest.FixtureRequest) -> AsyncIterator[Timed]:
    """The same on a server that has just started, for a test in which the time since its start matters."""
    untidy = request.node.get_closest_marker("untidy") is not None
    async with MemoryStorage(testing=True) as opened:
        made = timed_queue(opened, name)
        async with made.queue:
            yield made
        await verify(opened, made.store, workers_gone=not untidy)


@pytest.fixture
async def _tasks() -> AsyncIterator[None]:
    problems: list[str] = []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Python 3.11 reports a cancelled connection handler of asyncio.start_server as if it had failed.
        if not isinstance(context.get("exception"), asyncio.CancelledError):
            problems.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(note)
    yield
    problems += await tasks_left()
    asyncio.get_running_loop().set_exception_handler(None)
    assert not problems, "\n".join(problems)


@pytest.fixture(autouse=True)
def _nothing_left_in_the_loop(request: pytest.FixtureRequest) -> None:
    """Check that every async test ends without open tasks and without errors reported to the loop."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("_tasks")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    # Spark's driver keeps its own threads and connections to its JVM.
    if item.get_closest_marker("spark") is None:
        item.stash[_HELD] = held()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Check that a test has no more threads and sockets after its fixtures than before its call, and no late errors."""
    result = yield
    item.config.stash.setdefault(_ENDED, deque(maxlen=3)).append(item.nodeid)
    # Spark's gateway keeps connections to the JVM for later.
    before = None if item.get_closest_marker("spark") else item.stash.get(_HELD, None)
    if before is None:
        return result
    with late_errors() as errors:
        # pytest would report these errors in the setup of a later test, which did not cause them. Most of the garbage
        # of a test is young, and a complete collection would take 30 ms.
        gc.collect(1)
        left = left_since(before)
    assert not left, f"the test left behind: {', '.join(left)}"
    if errors:
        warnings.warn(pytest.PytestUnraisableExceptionWarning("\n".join(errors)), stacklevel=1)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the previous tests of this process when a setup fails, because one of them may be the cause."""
    report = yield
    if report.when == "setup" and report.failed:
        previous: deque[str] = item.config.stash.get(_ENDED, deque[str]())
        report.sections.append(("previous tests of this process", "\n".join(previous)))
    return report
