"""`.sync` under difficult conditions: forks among busy threads, garbage collection, exits inside calls, the end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from glidemq_async import Queue, QueueEvent, QueueEvents, Worker
from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async.storage import MemoryStorage
from tests.behaviour.test_sync import Stateless, cannot_fork, script
from tests.support.helpers import AnyJob
from tests.support.servers import standalone


def test_events_are_iterated_without_a_loop() -> None:
    emails = Queue[int, Any]("q", "memory://")
    with emails.sync as queue:
        added = queue.add("n", 1)
        with QueueEvents("q", emails.storage, after="0").sync as events:
            found = next(iter(events))
            assert isinstance(found, QueueEvent)
            assert (found.kind, found.job_id) == ("added", added.id)
        with QueueEvents("q", emails.storage, after=found.position).sync as later:
            threading.Timer(0.05, later.close).start()
            assert list(later) == [], "closing must end the wait"


def test_an_iterator_collected_in_the_loops_thread_is_closed() -> None:
    closed = threading.Event()

    class Items(Stateless):
        async def numbers(self) -> AsyncGenerator[int]:
            try:
                yield 1
                yield 2
            finally:
                closed.set()

        async def connect(self) -> None:
            self.loop = asyncio.get_running_loop()

        async def collect(self) -> None:
            gc.collect()

    class SyncItems(Blocking[Items]):
        numbers = blocking(Items.numbers)
        connect = blocking(Items.connect)
        collect = blocking(Items.collect)

    items = Items()
    sync = SyncItems(items, items)
    sync.connect()
    gc.disable()
    try:
        left: list[Any] = [sync.numbers()]
        assert next(left[0]) == 1
        left.append(left)
        del left
        sync.collect()
        assert closed.wait(5)
    finally:
        gc.enable()
        items.loop = None
        sync.collect()


AT_THE_VERY_END = """
import atexit, sys
from glidemq_async import Queue
queue = Queue("q", sys.argv[1])
def last():
    print(queue.sync.add("n", 1).outcome)
atexit.register(last)
"""


@pytest.mark.parametrize("before", ["", "queue.sync.connect()"])
async def test_an_exit_handler_of_the_program_can_add(before: str) -> None:
    # Names are resolved in threads, and no new thread can start then.
    async with standalone() as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert "localhost" in url
        assert await asyncio.to_thread(script, AT_THE_VERY_END + before, url) == "added\n"


AMONG_THREADS = """
import os, sys, threading
from glidemq_async import GlideMQ
mq = GlideMQ(sys.argv[1], queue="q")
@mq.task
def note(number: int) -> None: ...
queue = mq.queue("q")
over, begun, counts = threading.Event(), threading.Event(), [0] * 50
def add(mine):
    while not over.is_set():
        note.sync.add(mine)
        counts[mine] += 1
        begun.set()
threads = [threading.Thread(target=add, args=[mine]) for mine in range(50)]
for thread in threads:
    thread.start()
begun.wait()
for child in range(8):
    pid = os.fork()
    if pid == 0:
        import signal
        signal.alarm(10)
        for number in range(5):
            note.sync.add(number)
        grandchild = os.fork()
        if grandchild == 0:
            note.sync.add_many([(number,) for number in range(100)])
            os._exit(0)      # as the workers of Spark and of multiprocessing end
        assert os.waitpid(grandchild, 0)[1] == 0
        mq.sync.close()
        sys.exit()
    assert os.waitpid(pid, 0)[1] == 0
over.set()
for thread in threads:
    thread.join()
assert queue.sync.count() == sum(counts) + 8 * 105
assert queue.sync.check() == []
mq.sync.close()
print("every one")
"""


@pytest.mark.skipif(cannot_fork(), reason="there is no fork here")
async def test_children_can_be_forked_while_50_threads_add() -> None:
    async with standalone() as server:
        assert await asyncio.to_thread(script, AMONG_THREADS, server.url, seconds=60) == "every one\n"


IN_THE_MIDDLE = """
import asyncio, os, sys, threading
from glidemq_async import GlideMQ
entered, go = threading.Event(), []
async def lifespan(app):
    entered.set()
    while not go:      # nothing that a fork could cut in two
        await asyncio.sleep(0.01)
    yield os.getpid()
mq = GlideMQ(sys.argv[1], queue="q", lifespan=lifespan)
@mq.task
async def whose() -> int:
    return mq.state
async def serve():
    async with mq.worker(handle_signals=False):
        pass
thread = threading.Thread(target=asyncio.run, args=[serve()])
thread.start()
entered.wait()
pid = os.fork()      # the parent opens its app at this moment
if pid == 0:
    go.append(1)
    async def work():
        async with asyncio.timeout(10), mq.worker(handle_signals=False):
            assert await (await whose.add()).result() == os.getpid()
    asyncio.run(work())
    mq.sync.close()
    os._exit(0)
status = os.waitpid(pid, 0)[1]
go.append(1)
thread.join()
print(status)
"""


@pytest.mark.skipif(cannot_fork(), reason="there is no fork here")
async def test_an_app_forked_while_it_opens_is_opened_again_in_the_child() -> None:
    async with standalone() as server:
        assert await asyncio.to_thread(script, IN_THE_MIDDLE, server.url) == "0\n"


async def test_fifty_concurrent_threads_can_end_after_their_adds() -> None:
    async def handler(job: AnyJob) -> int:
        return int(job.data)

    async with MemoryStorage() as storage, Queue[int, int]("q", storage) as queue:
        ready = threading.Barrier(50)
        found: list[int] = []

        def one(number: int) -> None:
            ready.wait()
            found.append(queue.sync.add_and_wait("n", number, wait_timeout=20))

        threads = [threading.Thread(target=one, args=[number]) for number in range(50)]
        async with Worker("q", handler, storage, handle_signals=False):
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        assert sorted(found) == list(range(50))
