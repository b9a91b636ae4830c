"""Streams of live documents: one reader for all clients, resuming, and slow clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.ops import live
from glidemq_async.ops.core import Ops
from glidemq_async.storage import Storage
from glidemq_async.web import event_endpoints
from glidemq_async.web.app import operations_app, running
from tests.web.clients import NO_LIMITS, serving

pytestmark = pytest.mark.only_on("memory")


class Listener:
    """A client of the stream of events, which reads what the app sends."""

    def __init__(self, app: Any, topics: str, after: str = "", *, is_slow: bool = False) -> None:
        headers = [(b"host", b"localhost"), *([(b"last-event-id", after.encode())] if after else [])]
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/events",
            "raw_path": b"/api/v1/events",
            "query_string": f"topics={topics}".encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "root_path": "",
            "scheme": "http",
        }
        self.app = app
        self.is_slow = is_slow
        self.events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.left = asyncio.Event()

    async def run(self) -> None:
        """Read until `left` is set."""
        await self.app(self.scope, self.receive, self.send)

    async def receive(self) -> dict[str, Any]:
        """Wait until the client leaves."""
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Take bytes of the app."""
        text = message.get("body", b"").decode()
        if text.startswith("id:"):
            self.events.put_nowait(dict(line.split(": ", 1) for line in text.strip().splitlines()))
            if self.is_slow:
                await self.left.wait()

    async def next(self) -> tuple[str, str, dict[str, Any]]:
        """Return the id, the name and the data of the next event."""
        found = await asyncio.wait_for(self.events.get(), 20)
        return found["id"], found["event"], json.loads(found["data"])


@asynccontextmanager
async def listening(app: Any, topics: str, after: str = "", *, is_slow: bool = False) -> AsyncGenerator[Listener]:
    """Provide a client that listens."""
    listener = Listener(app, topics, after, is_slow=is_slow)
    task = asyncio.create_task(listener.run())
    try:
        yield listener
    finally:
        listener.left.set()
        await task


async def test_a_change_arrives_and_a_known_position_resumes(storage: Storage, name: str) -> None:
    app = operations_app(storage, limits=NO_LIMITS)
    async with Queue[Any, Any](name, storage) as queue, running(app):
        async with listening(app, "queues") as first:
            _, event, data = await first.next()
            assert event == "snapshot"
            assert [row["name"] for row in data["document"]["queues"]] == [name]
            await queue.add("x")
            position, event, data = await first.next()
            assert event == "update"
            assert data["document"]["queues"][0]["counts"]["waiting"] == 1
        async with listening(app, "queues", position) as second:
            _, event, _ = await second.next()
            assert event == "update"
        async with listening(app, "queues", "unknown-3") as third:
            assert (await third.next())[1] == "snapshot"


async def test_all_clients_share_one_reader_and_nothing_is_read_without_clients(storage: Storage, name: str) -> None:
    app = operations_app(storage, limits=NO_LIMITS)
    async with Queue[Any, Any](name, storage), running(app):
        live = app.state.web.ops.live
        assert live.readings == 0
        async with listening(app, "overview") as first, listening(app, "overview") as second:
            for client in (first, second):
                await client.next()
                await client.next()
            assert live.readings <= 4
        assert app.state.web.streams == 0


async def test_a_client_that_takes_no_bytes_is_disconnected(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_endpoints, "STUCK_SECONDS", 0.1)
    app = operations_app(storage, limits=NO_LIMITS)
    async with Queue[Any, Any](name, storage), running(app):
        listener = Listener(app, "overview", is_slow=True)
        await asyncio.wait_for(listener.run(), 20)
        assert app.state.web.streams == 0


async def test_an_unknown_topic_and_too_many_streams_are_refused(storage: Storage) -> None:
    async with serving(storage) as client:
        reply = await client.get("/api/v1/events?topics=weather")
        assert (reply.status_code, reply.json()["title"]) == (422, "invalid query")


async def test_viewers_of_a_removed_queue_learn_that_it_is_gone(storage: Storage) -> None:
    async with Ops(storage) as ops, aclosing(ops.live.subscribe(["queue:nowhere"])) as documents:
        found = await anext(documents)
        assert "gone" in json.loads(found.text)


@pytest.mark.slow
async def test_a_thousand_clients_share_one_reader(storage: Storage, name: str) -> None:
    app = operations_app(storage, limits=NO_LIMITS)
    async with Queue[Any, Any](name, storage) as queue, running(app):
        clients = [Listener(app, "queues") for _ in range(1_000)]
        tasks = [asyncio.create_task(each.run()) for each in clients]
        for each in clients:
            await each.next()
        before = app.state.web.ops.live.readings
        await queue.add("x")
        for each in clients:
            assert (await each.next())[1] == "update"
        assert app.state.web.ops.live.readings - before <= 10
        for each in clients:
            each.left.set()
        await asyncio.gather(*tasks)
        assert app.state.web.streams == 0


async def test_work_of_the_process_delays_the_next_reading_by_a_bounded_time(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The loop has other work while a reading waits for the store. Here that work takes 100 seconds of the processor.
    spent = iter(range(0, 1_000_000, 100))
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    monkeypatch.setattr(live, "LONGEST_PAUSE", 0.2)
    app = operations_app(storage, limits=NO_LIMITS)
    async with Queue[Any, Any](name, storage) as queue, running(app), listening(app, f"queue:{name}") as listener:
        await queue.add("n")
        assert (await listener.next())[1] == "snapshot"
        await queue.add("n")
        assert (await listener.next())[1] == "update"
