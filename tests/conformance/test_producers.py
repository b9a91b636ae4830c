"""Producers of serverless functions: cold starts, frozen processes, dead connections, several event loops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from glidemq_async import (
    Backoff,
    IncompatibleQueueError,
    JobOptions,
    JsonSerializer,
    PayloadTooLarge,
    Producer,
    Queue,
    QueueClosed,
    StorageUnavailable,
)
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE, AnyQueue, echo, soon, worker_of
from tests.support.servers import standalone
from tests.support.stores import RunningStore
from tests.support.tcp_proxy import TcpProxy


def url_of(store: RunningStore) -> str:
    server = store.primaries[0]
    return f"unix://{server.path}" if server.path else f"redis://{server.where}"


class Gateway(TcpProxy):
    """Forwards a connection, and can hold back replies, swallow everything, or cut a connection before a reply."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.asked = b""
        self.answering = asyncio.Event()
        self.answering.set()
        self.dead = 0
        """The first connections up to this number carry nothing any more."""
        self.cut_before_reply_to = b""

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        there, back = await self.open_upstream(self._port)
        answers = asyncio.create_task(self._answer(there, writer, number))
        try:
            while data := await reader.read(65536):
                if number > self.dead:
                    self.asked += data
                    back.write(data)
        finally:
            answers.cancel()
            back.transport.abort()

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while data := await there.read(65536):
            await self.answering.wait()
            if number <= self.dead:
                continue
            if self.cut_before_reply_to and self.cut_before_reply_to in self.asked:
                self.cut_before_reply_to = b""
                writer.transport.abort()
                return
            writer.write(data)


def test_creating_a_producer_connects_nothing() -> None:
    producer = Producer[Any]("emails", "redis://:secret@127.0.0.1:1")
    assert (producer.name, producer.is_closed) == ("emails", False)
    assert repr(producer) == "<Producer 'emails' on redis://:***@127.0.0.1:1>"
    refused: list[dict[str, Any]] = [{"max_idle": 0}, {"max_idle": -1}, {"prefix": "{"}, {"timeout": 0}]
    for settings in refused:
        with pytest.raises(ValueError, match=next(iter(settings))):
            Producer[Any]("emails", "redis://127.0.0.1:1", **settings)
    with pytest.raises(TypeError, match="unexpected keyword argument 'mode'"):
        Producer[Any]("emails", "redis://127.0.0.1:1", mode="keyed")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def test_the_first_add_is_one_round_trip(name: str) -> None:
    async with standalone() as server, Queue[Any, Any](name, server.url) as queue, Gateway(server.port) as between:
        async with Producer[Any](name, between.url) as producer:
            between.answering.clear()
            adding = asyncio.create_task(producer.add("n", 1))
            async with asyncio.timeout(PATIENCE):
                while b"addPlain" not in between.asked:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            between.answering.set()
            job = await soon(adding)
            assert (job.id, job.outcome, job.data) == ("1", "added", 1)
        assert between.asked.count(b"FCALL") == 1
        assert await queue.count() == 1


async def test_a_new_server_gets_the_library_and_the_queue(name: str) -> None:
    async with standalone() as server, Producer[Any](name, server.url) as producer:
        first = await producer.add("n", 1)
        second = await producer.add("n", 2, delay=60)
        async with Queue[Any, Any](name, server.url) as queue, worker_of(queue, echo):
            assert await first.result(PATIENCE) == 1
            assert (await queue.get_job_counts())["delayed"] == 1
            assert second.state == "delayed"
            assert await queue.check() == []


@pytest.mark.everywhere
async def test_a_producer_adds_as_a_queue_does(queue: AnyQueue, storage: Storage) -> None:
    options = JobOptions(attempts=3, backoff=Backoff.fixed(1), headers={"h": "1"})
    async with Producer[Any](queue.name, storage, default_options=options) as producer:
        job = await producer.add("n", [1], priority=3, job_id="mine")
        again = await producer.add("n", [2], job_id="mine")
        batch = await producer.add_bulk([("a", 1), ("b", 2, JobOptions(key="k"))])
        assert (job.outcome, again.outcome, again.data) == ("added", "duplicate", [1])
        with pytest.raises(TypeError, match="'atempts'"):
            await producer.add("n", atempts=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        stored = await queue.get_job("mine")
        assert stored is not None
        assert (stored.options.attempts, stored.priority, stored.headers) == (3, 3, {"h": "1"})
        async with worker_of(queue, echo):
            assert await batch.results(PATIENCE) == [1, 2]
            assert await job.result(PATIENCE) == [1]
    assert await queue.count() == 0  # the storage of the user is still open


@pytest.mark.everywhere
async def test_a_producer_opens_its_own_connection(store: RunningStore, queue: AnyQueue) -> None:
    url = url_of(store) if store.name == "memory" else store.url
    async with Producer[Any](queue.name, url) as producer:
        assert [(await producer.add("n", number)).id for number in range(3)] == ["1", "2", "3"]
        producer._queue.drop_connection("a test")  # pyright: ignore[reportPrivateUsage]
        batch = await producer.add_bulk([("n", number, JobOptions(key="k")) for number in range(3, 6)])
        async with worker_of(queue, echo):
            assert await batch.results(PATIENCE) == [3, 4, 5]


async def test_serializers_and_limits_apply(store: RunningStore, queue: AnyQueue) -> None:
    given = Producer[Any](queue.name, url_of(store), serializer=JsonSerializer(), payload_limit=10, ids="uuid7")
    async with given as producer:
        job = await producer.add("n", {"a": 1})
        assert len(job.id) == 36
        with pytest.raises(PayloadTooLarge):
            await producer.add("n", "a" * 10)
        stored = await queue.get_job(job.id)
        assert stored is not None
        assert stored.data_size == len(b'{"a":1}')
    await queue.obliterate()


async def test_data_of_others_and_other_modes_are_refused(store: RunningStore, storage: Storage, name: str) -> None:
    async with Producer[Any](f"{name}-foreign", url_of(store)) as producer:
        await store.command("SET", f"glide:{{{name}-foreign}}:meta", "mine")
        with pytest.raises(IncompatibleQueueError):
            await producer.add("n", 1)
        await store.command("DEL", f"glide:{{{name}-foreign}}:meta")
    async with Queue[Any, Any](name, storage, mode="keyed"), Producer[Any](name, url_of(store)) as producer:
        with pytest.raises(IncompatibleQueueError, match="mode keyed"):
            await producer.add("n", 1)
        assert (await producer.add("n", 1, key="k")).state == "key-waiting"


async def test_a_killed_connection_costs_no_job_and_doubles_none(store: RunningStore, queue: AnyQueue) -> None:
    async with Producer[Any](queue.name, url_of(store)) as producer:
        for number in range(10):
            await producer.add("n", number)
            await store.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await asyncio.gather(*(producer.add("n", number) for number in range(10, 20)))
    assert sorted([job.data async for job in queue.iter_jobs("waiting")]) == list(range(20))


async def test_a_lost_reply_does_not_double_the_job(name: str) -> None:
    async with standalone() as server, Queue[Any, Any](name, server.url) as queue, Gateway(server.port) as between:
        between.cut_before_reply_to = b"addPlain"
        async with Producer[Any](name, between.url) as producer:
            assert (await producer.add("n", 1)).id == "1"
            assert between.connections == 2
            assert (await producer.add("n", 2)).id == "2"
        assert await queue.count() == 2


async def test_a_connection_that_died_while_idle_is_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        standalone() as server,
        Gateway(server.port) as between,
        Producer[Any](name, between.url, max_idle=30) as producer,
    ):
        await producer.add("n", 1)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 29)
        await producer.add("n", 2)
        assert between.connections == 1
        between.dead = 1
        monkeypatch.setattr(time, "time", lambda: now + 60)
        # Less than the five seconds after which the storage gives up a silent connection.
        assert (await soon(producer.add("n", 3), 4)).id == "3"
        assert between.connections == 2


FROZEN = """
import asyncio, sys
from glidemq_async import Producer

producer = Producer(sys.argv[2], sys.argv[1])

async def main():
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print((await producer.add("n", line.strip())).id, flush=True)
    await producer.close()

asyncio.run(main())
"""


async def test_a_frozen_process_adds_again(store: RunningStore, queue: AnyQueue) -> None:
    command = [sys.executable, "-c", FROZEN, url_of(store), queue.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: ASYNC220
        assert child.stdin is not None
        assert child.stdout is not None

        async def add(text: str) -> bytes:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{text}\n".encode())
            child.stdin.flush()
            return await asyncio.to_thread(child.stdout.readline)

        assert await soon(add("first")) == b"1\n"
        for number in (2, 3):
            os.kill(child.pid, signal.SIGSTOP)
            await store.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            os.kill(child.pid, signal.SIGCONT)
            assert await soon(add("later")) == b"%d\n" % number
        child.stdin.close()
        assert await asyncio.to_thread(child.wait, 10) == 0
    assert [job.data async for job in queue.iter_jobs("waiting")] == ["first", "later", "later"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_one_event_loop_after_another(store: RunningStore, storage: Storage, queue: AnyQueue) -> None:
    own, shared = Producer[Any](queue.name, url_of(store)), Producer[Any](queue.name, storage.clone())

    async def handle(number: int) -> list[str]:
        return [(await producer.add("n", number)).id for producer in (own, shared)]

    def run(number: int) -> list[str]:
        return asyncio.run(handle(number))

    assert [await asyncio.to_thread(run, number) for number in range(3)] == [["1", "2"], ["3", "4"], ["5", "6"]]
    await own.close()
    await shared.close()
    assert await queue.count() == 6


async def test_the_blocking_form(store: RunningStore, queue: AnyQueue) -> None:
    producer = Producer[Any](queue.name, url_of(store))

    def use() -> list[str]:
        with producer.sync as adds:
            return [adds.add("n", 1).id, *(job.id for job in adds.add_bulk([("n", 2)]))]

    assert await asyncio.to_thread(use) == ["1", "2"]
    assert producer.is_closed


async def test_a_closed_producer_refuses_adds(store: RunningStore, queue: AnyQueue) -> None:
    unused = Producer[Any](queue.name, "redis://127.0.0.1:1")
    await unused.close()
    producer = Producer[Any](queue.name, url_of(store))
    await producer.add("n", 1)
    for _ in range(2):
        await producer.close()
    for closed in (unused, producer):
        with pytest.raises(QueueClosed, match="create a new Producer"):
            await closed.add("n", 2)
        with pytest.raises(QueueClosed):
            await closed.add_bulk([("n", 2)])


async def test_a_refused_login_is_reported(name: str) -> None:
    async with standalone() as server:
        await server.command("CONFIG", "SET", "requirepass", "right")
        for login in ("", ":wrong@"):
            async with Producer[Any](name, server.url.replace("://", f"://{login}"), timeout=5) as producer:
                with pytest.raises(StorageUnavailable, match="password"):
                    await producer.add("n", 1)
        async with Producer[Any](name, server.url.replace("://", "://:right@")) as producer:
            assert (await producer.add("n", 1)).id == "1"


async def test_an_unreachable_server_is_reported(name: str) -> None:
    async with Producer[Any](name, "redis://127.0.0.1:1", timeout=0.2) as producer:
        with pytest.raises(StorageUnavailable):
            await producer.add("n", 1)


async def test_an_obliterated_queue_is_opened_again(store: RunningStore, queue: AnyQueue) -> None:
    async with Producer[Any](queue.name, url_of(store)) as producer:
        await producer.add("n", 1)
        await queue.obliterate(force=True)
        assert (await producer.add("n", 2)).data == 2
    async with worker_of(queue, echo):
        async with asyncio.timeout(PATIENCE):
            while (await queue.get_job_counts())["completed"] != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
