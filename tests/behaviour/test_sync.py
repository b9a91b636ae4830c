"""`.sync`: the same methods without an event loop, from any thread, in forked children and at the end of the
interpreter.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from glidemq_async import Job, Queue, QueueClosed, QueueEvent, QueueEvents, SyncJob, SyncQueue, Worker
from glidemq_async._internal import portal
from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.portal import EXIT_SECONDS
from glidemq_async.queues.events import SyncQueueEvents
from glidemq_async.queues.operations import QueueOperation, SyncQueueOperation
from glidemq_async.storage import MemoryStorage
from glidemq_async.tasks import AwaitedTask, BoundTask, GlideMQ, SyncAdds, SyncApp, SyncAwaitedTask, SyncTask, Task
from glidemq_async.testing import Harness, MovableClock
from glidemq_async.testing.clock import SyncClock
from glidemq_async.testing.harness import SyncHarness
from tests.support.helpers import AnyJob, soon
from tests.support.servers import standalone
from tests.support.stores import RunningStore

NOT_FOR_USERS: dict[type, set[str]] = {
    GlideMQ: {"add_task", "add_tasks", "enter", "find_job", "leave", "run_worker"},
    # Calls are for workflows, which run in an event loop.
    Task: {"add_with", "call"},
    BoundTask: {"call"},
}
PLAIN: dict[type, set[str]] = {SyncQueue: {"operation"}, SyncQueueOperation: {"id"}}
"""Attributes that send nothing, so they need no blocking form."""


def coroutines(thing: type) -> set[str]:
    """Return the names of the public coroutine methods of a class."""
    return {
        name
        for name, method in inspect.getmembers(thing, inspect.isfunction)
        if name[0] != "_"
        and (inspect.iscoroutinefunction(inspect.unwrap(method)) or inspect.isasyncgenfunction(inspect.unwrap(method)))
    }


class Stateless:
    """An object with a coroutine that belongs to no loop."""

    loop: asyncio.AbstractEventLoop | None = None

    @property
    def sync(self) -> SyncStateless:
        """The blocking form of `work`, which subclasses override."""
        return SyncStateless(self, self)

    async def work(self) -> object:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


class SyncStateless(Blocking[Stateless]):
    """The blocking form of Stateless."""

    work = blocking(Stateless.work)


@pytest.mark.parametrize(
    ("of", "facade"),
    [
        (Queue, SyncQueue),
        (QueueOperation, SyncQueueOperation),
        (Job, SyncJob),
        (QueueEvents, SyncQueueEvents),
        (Task, SyncTask),
        (BoundTask, SyncAdds),
        (AwaitedTask, SyncAwaitedTask),
        (GlideMQ, SyncApp),
        (Harness, SyncHarness),
        (MovableClock, SyncClock),
    ],
)
def test_sync_has_every_coroutine_with_its_signature(of: type, facade: type) -> None:
    methods = {name: getattr(facade, name) for name in dir(facade) if name[0] != "_"}
    for name in PLAIN.get(facade, ()):
        del methods[name]
    assert set(methods) == coroutines(of) - NOT_FOR_USERS.get(of, set())
    for name, method in methods.items():
        assert list(inspect.signature(method).parameters) == list(inspect.signature(getattr(of, name)).parameters), name
        assert inspect.getdoc(method), name


def test_methods_and_iterators_work_without_a_loop() -> None:
    with Queue[dict[str, int], None]("q", "memory://").sync as queue:
        job = queue.add("n", {"n": 1}, priority=3)
        assert (job.outcome, job.sync.get_state()) == ("added", "prioritized")
        queue.add_bulk([("n", {"n": n}) for n in range(4)])
        assert [found.data["n"] for found in queue.iter_jobs("waiting")] == [0, 1, 2, 3]
        for found in queue.iter_jobs("waiting"):  # left early: the iterator is closed
            assert found.data == {"n": 0}
            break
        assert queue.count() == 5
    with pytest.raises(QueueClosed):
        queue.count()


def test_a_bulk_operation_runs_without_a_loop() -> None:
    with Queue[Any, Any]("q", "memory://").sync as queue:
        queue.add_bulk([("n", n) for n in range(3)])
        operation = queue.operation("cancel", "state:waiting", reason="a wrong import")
        preview = operation.preview()
        assert (preview.count, operation.id) == (3, preview.operation_id)
        operation.start(preview.ticket)
        ended = operation.run()
        assert (ended.state, ended.done, operation.progress().done) == ("done", 3, 3)
        assert queue.get_job_counts()["failed"] == 3


def test_the_facade_has_only_coroutine_methods() -> None:
    queue = Queue[Any, Any]("q", "memory://")
    with pytest.raises(AttributeError, match=r"Queue\.sync has only coroutine methods"):
        _ = queue.sync.storage  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_errors_are_the_errors_of_the_method() -> None:
    with Queue[Any, Any]("q", "memory://").sync as queue:
        with pytest.raises(ValueError, match="delay"):
            queue.add("n", delay=-1)
        job = queue.add("n")
        with pytest.raises(TimeoutError):
            job.sync.result(timeout=0.01)


def test_the_thread_ends_with_the_last_object_it_served() -> None:
    def serving() -> int:
        return [thread.name for thread in threading.enumerate()].count("glidemq-sync")

    one, two = Queue[Any, Any]("one", "memory://"), Queue[Any, Any]("two", "memory://")
    one.sync.add("n")
    two.sync.add("n")
    one.sync.close()
    assert serving() == 1
    two.sync.close()
    assert serving() == 0


def test_many_threads_share_the_loop() -> None:
    with Queue[int, Any]("q", "memory://").sync as queue, ThreadPoolExecutor(16) as threads:

        def add(number: int) -> str:
            return queue.add("n", number).id

        ids = list(threads.map(add, range(400)))
        assert len(set(ids)) == queue.count() == 400


async def test_sync_works_in_the_thread_of_an_unrelated_running_loop() -> None:
    # A notebook: the cell runs in the thread of a loop.
    with Queue[str, Any]("q", "memory://").sync as queue:
        assert queue.add("n", "cell").outcome == "added"


async def test_a_wait_in_the_thread_of_the_needed_loop_is_refused() -> None:
    async with Queue[Any, Any]("q", "memory://") as queue:
        with pytest.raises(RuntimeError, match="await the method itself"):
            queue.sync.add("n")
        with pytest.raises(RuntimeError, match="await the method itself"):
            (await queue.add("n")).sync.remove()
        assert await queue.count() == 1


async def test_another_loop_cannot_close_an_object_that_sync_opened() -> None:
    async with standalone() as server:
        queue = Queue[Any, Any]("q", server.url)
        assert queue.sync.add("n").outcome == "added"
        with pytest.raises(RuntimeError, match=r"opened in another event loop.*sync"):
            await queue.close()
        with pytest.raises(RuntimeError, match=r"opened in another event loop.*sync"):
            await queue.storage.close()
        with pytest.raises(RuntimeError, match=r"opened in another event loop.*sync"):
            await queue.count()
        assert queue.sync.count() == 1
        queue.sync.close()
        await queue.close()  # there is nothing left to do


async def test_another_loop_cannot_end_events_that_sync_reads() -> None:
    async with standalone() as server:
        queue, events = Queue[Any, Any]("q", server.url), QueueEvents("q", server.url)
        events.sync.connect()
        with pytest.raises(RuntimeError, match=r"opened in another event loop.*sync"):
            await events.close()
        queue.sync.add("n")
        [first] = itertools.islice(events.sync, 1)
        assert isinstance(first, QueueEvent)
        assert first.kind == "added"
        events.sync.close()
        queue.sync.close()


async def test_the_loop_of_an_open_storage_runs_the_work() -> None:
    async with MemoryStorage() as storage:
        queue = Queue[Any, Any]("q", storage)
        with pytest.raises(RuntimeError, match="await the method itself"):
            queue.sync.add("n")
        assert (await asyncio.to_thread(queue.sync.add, "n")).outcome == "added"
        assert await queue.count() == 1
        await queue.close()


def test_a_sync_call_in_the_thread_of_the_portal_is_refused() -> None:
    class Careless(Stateless):
        async def work(self) -> None:
            Queue[Any, Any]("q", "memory://").sync.add("n")

    with pytest.raises(RuntimeError, match="await the method itself"):
        Careless().sync.work()


def test_an_object_of_a_loop_that_has_ended_is_refused() -> None:
    queue = Queue[Any, Any]("q", "memory://")
    with asyncio.Runner() as runner:
        runner.run(queue.connect())
        with pytest.raises(RuntimeError, match="has ended"):
            queue.sync.add("n")
        with pytest.raises(RuntimeError, match=r"has ended.*create new ones"):
            asyncio.run(queue.count())
        runner.run(queue.close())
    with pytest.raises(QueueClosed):
        queue.sync.add("n")


async def test_a_handler_in_a_thread_reaches_its_worker() -> None:
    def handler(job: AnyJob) -> str:
        job.sync.update_progress(50)
        job.sync.log(f"in {threading.current_thread().name}")
        return str(job.sync.get_state())

    async with Queue[Any, str]("q", "memory://") as queue:
        async with Worker("q", handler, queue.storage, executor="thread", handle_signals=False):
            job = await queue.add("n")
            assert await job.result(10) == "active"
        assert len(await queue.get_job_logs(job.id)) == 1
        await job.refresh()
        assert job.progress == 50


def test_context_variables_reach_the_coroutine() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")

    class Traced(Stateless):
        async def work(self) -> str:
            return trace.get()

    trace.set("0af7")
    assert Traced().sync.work() == "0af7"


def interrupt_when(began: threading.Event) -> None:
    """Press Ctrl-C in this process."""
    began.wait()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, even if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_call_is_cancelled() -> None:
    began, cancelled = threading.Event(), threading.Event()

    class Slow(Stateless):
        async def work(self) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    # Ctrl-C arrives while the main thread waits for the work.
    threading.Thread(target=interrupt_when, args=[began]).start()
    with pytest.raises(KeyboardInterrupt):
        Slow().sync.work()
    assert cancelled.wait(5)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_sync_call_is_raised_in_its_caller(kind: type[BaseException]) -> None:
    class Exits(Stateless):
        async def work(self) -> None:
            raise kind

    with Queue[Any, Any]("q", "memory://").sync as queue:
        with pytest.raises(kind):
            Exits().sync.work()
        assert queue.add("n").outcome == "added"  # the loop still runs


def test_cancelled_work_is_reported_as_cancelled() -> None:
    class Cancels(Stateless):
        async def work(self) -> None:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        Cancels().sync.work()


def script(text: str, url: str, *, seconds: float = 20.0) -> str:
    """Run a program with the URL as its argument; return its output. It must print nothing on stderr."""
    command = [sys.executable, "-W", "error", "-c", text, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


AT_EXIT = """
import sys
from glidemq_async import Queue
queue = Queue("q", sys.argv[1])
print(queue.sync.add("n", 1).outcome, flush=True)
"""


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_program_that_closes_nothing_ends_immediately(kind: str) -> None:
    async with standalone() as server:
        url = server.url if kind == "redis" else "memory://"
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", AT_EXIT, url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert program.stdout is not None
        assert await soon(program.stdout.readline(), 20) == b"added\n"
        added = time.monotonic()
        assert await soon(program.communicate(), 20) == (b"", b"")
        assert (program.returncode, time.monotonic() - added < EXIT_SECONDS) == (0, True)


DAEMONS = """
import sys, threading, time
from glidemq_async import Queue
queue = Queue("q", sys.argv[1])
queue.sync.connect()
enough = threading.Event()
def add():
    for number in range(100_000):
        try:
            job = queue.sync.add("n", number)
        except Exception:
            return
        sys.stdout.write(job.id + chr(10))
        if number == 50:
            enough.set()
for _ in range(4):
    threading.Thread(target=add, daemon=True).start()
enough.wait()
sys.stdout.flush()
"""


async def test_jobs_that_daemon_threads_added_at_the_end_of_the_program_are_stored() -> None:
    async with standalone() as server:
        acknowledged = set((await asyncio.to_thread(script, DAEMONS, server.url)).split())
        async with Queue[Any, Any]("q", server.url) as queue:
            stored = {job.id async for job in queue.iter_jobs("waiting")}
        assert len(acknowledged) > 50
        assert acknowledged <= stored


FORKED = """
import os, sys, asyncio
from glidemq_async import Queue
queue = Queue("q", sys.argv[1])
other = Queue("q", queue.storage)
queue.sync.add("parent", 0)
other.sync.add("parent", 1)
for child in range(2):
    pid = os.fork()
    if pid == 0:
        for number in range(20):
            queue.sync.add(f"child {child}", number)
            other.sync.add(f"child {child}", number)
        sys.exit()   # the whole end of an interpreter: everything inherited is collected
    for number in range(20):
        queue.sync.add("parent", number)
    assert os.waitpid(pid, 0)[1] == 0
queue.sync.add("parent", 21)
print(queue.sync.count())
queue.sync.close()
"""

IN_LOOP = """
import os, sys, asyncio, threading
from glidemq_async import Queue
loop_factory = None
if sys.argv[1].startswith("redis+uv"):
    import uvloop
    loop_factory, url = uvloop.new_event_loop, sys.argv[1].replace("redis+uv", "redis")
else:
    url = sys.argv[1]
ready, go, done = threading.Event(), threading.Event(), threading.Event()
async def serve():
    async with Queue("q", url) as queue:
        await queue.add("parent")
        shared.append(queue)
        ready.set()
        await asyncio.to_thread(go.wait)
        async with asyncio.timeout(5):
            for number in range(50):
                await queue.add("parent", number)
            print(await queue.count())
shared = []
def main():
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(serve())
thread = threading.Thread(target=main)
thread.start()
ready.wait()
pid = os.fork()
if pid == 0:
    async def work():
        for number in range(20):
            await shared[0].add("child", number)
        await shared[0].close()
    asyncio.run(work())
    sys.exit()
status = os.waitpid(pid, 0)[1]
go.set()
thread.join()
sys.exit(status)
"""


def cannot_fork() -> bool:
    return not hasattr(sys, "getswitchinterval") or sys.platform == "win32"


@pytest.mark.skipif(cannot_fork(), reason="there is no fork here")
@pytest.mark.parametrize(
    ("text", "prefix", "expected"), [(FORKED, "redis", "123"), (IN_LOOP, "redis", "71"), (IN_LOOP, "redis+uv", "71")]
)
async def test_a_forked_child_has_its_own_connections(text: str, prefix: str, expected: str) -> None:
    async with standalone() as server:
        url = server.url.replace("redis", prefix)
        assert await asyncio.to_thread(script, text, url) == f"{expected}\n"
        async with Queue[Any, Any]("q", server.url) as queue:
            assert await queue.check() == []


MEMORY = """
import os, sys
from glidemq_async import Queue
queue = Queue("q", "memory://")
queue.sync.add("parent")
pid = os.fork()
if pid == 0:
    queue.sync.add("child")
    queue.sync.close()
    fresh = Queue("q", "memory://")
    print(fresh.sync.count(), flush=True)
    fresh.sync.close()
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
print(queue.sync.count())
"""


@pytest.mark.skipif(cannot_fork(), reason="there is no fork here")
def test_a_memory_queue_is_shared_with_a_forked_child() -> None:
    assert script(MEMORY, "") == "0\n2\n"


@pytest.mark.everywhere
def test_sync_works_on_every_storage(store: RunningStore, name: str) -> None:
    with Queue[Any, Any](name, store.url).sync as queue:
        assert queue.add("n", 1).outcome == "added"
        assert queue.obliterate() == 1


def test_an_error_at_the_start_of_the_loop_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_descriptors() -> None:
        raise OSError("too many open files")

    queue = Queue[Any, Any]("q", "memory://")
    with monkeypatch.context() as broken:
        broken.setattr(portal, "_Loop", out_of_descriptors)
        with pytest.raises(OSError, match="too many"):
            queue.sync.add("n")
    with queue.sync as opened:
        assert opened.add("n").outcome == "added"


async def test_a_blocked_loop_is_reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal, "BLOCKED_SECONDS", 0.02)
    monkeypatch.setattr(portal, "CHECK_SECONDS", 0.01)
    reported = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reported.set()

    heard = Heard()
    logging.getLogger(portal.__name__).addHandler(heard)
    try:
        async with Queue("q", "memory://") as queue:
            adding = asyncio.create_task(asyncio.to_thread(queue.sync.add, "n"))
            await asyncio.sleep(0)
            assert reported.wait(10)  # and this loop does nothing else during that time
            assert (await adding).id == "1"
    finally:
        logging.getLogger(portal.__name__).removeHandler(heard)
    (message,) = caplog.messages
    assert "waits for Queue.add, which the event loop has not started" in message
