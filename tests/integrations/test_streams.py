"""Streams of jobs as server-sent events, over real servers of FastAPI and aiohttp."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvicorn
from aiohttp import ClientResponse, ClientSession, web
from fastapi import FastAPI, Response
from starlette.types import ASGIApp
from typing_extensions import override

from glidemq_async import Queue, StreamLimits, UnrecoverableError
from glidemq_async.integrations import aiohttp as for_aiohttp
from glidemq_async.integrations.fastapi import stream_response
from tests.support.helpers import AnyJob, AnyQueue, Gate, soon, until, worker_of
from tests.support.servers import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
Service: TypeAlias = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
async def queue() -> AsyncGenerator[AnyQueue]:
    async with Queue[Any, Any]("answers", "memory://") as opened:
        yield opened


@asynccontextmanager
async def uvicorn_service(queue: AnyQueue, **options: Any) -> AsyncGenerator[str]:
    """Serve the streams of a queue with FastAPI; yield the address."""
    app = FastAPI()

    @app.get("/{job_id}")
    async def stream(job_id: str) -> Response:
        return stream_response(queue, job_id, **options)

    async with uvicorn_server(app) as url:
        yield url


class _QuietServer(uvicorn.Server):
    """A server that leaves the signals to pytest."""

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def uvicorn_server(app: ASGIApp) -> AsyncGenerator[str]:
    port = free_port()
    server = _QuietServer(uvicorn.Config(app, port=port, log_level="warning", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def aiohttp_service(queue: AnyQueue, **options: Any) -> AsyncGenerator[str]:
    """Serve the streams of a queue with aiohttp; yield the address."""

    async def stream(request: web.Request) -> web.StreamResponse:
        return await for_aiohttp.stream_response(request, queue, request.match_info["job_id"], **options)

    app = web.Application()
    app.add_routes([web.get("/{job_id}", stream)])
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@pytest.fixture(params=["fastapi", "aiohttp"])
def service(request: pytest.FixtureRequest) -> Service:
    return uvicorn_service if request.param == "fastapi" else aiohttp_service


@pytest.fixture
async def client() -> AsyncGenerator[ClientSession]:
    async with ClientSession() as session:
        yield session
    await asyncio.sleep(0)


Event: TypeAlias = dict[str, str]


async def next_event(response: ClientResponse) -> Event | None:
    """Return the next event, a comment as {"comment": ...}; None at the end of the response."""
    event: Event = {}
    async with asyncio.timeout(10):
        async for line in response.content:
            text = line.decode().rstrip("\n")
            if not text:
                return event
            name, _, value = text.partition(": ")
            event[name or "comment"] = value
    return None


async def events_of(response: ClientResponse) -> list[Event]:
    events: list[Event] = []
    while (event := await next_event(response)) is not None:
        events.append(event)
    return events


async def words(job: AnyJob) -> None:
    for word in job.data:
        await job.stream(word)


END = {"id": "end", "event": "end", "data": '{"state": "completed"}'}


async def test_chunks_are_sent_as_events(queue: AnyQueue, service: Service, client: ClientSession) -> None:
    gate = Gate()

    async def handler(job: AnyJob) -> None:
        await job.stream("first\nline")
        await gate(job)
        await job.stream({"n": 2})

    async with worker_of(queue, handler), service(queue) as url:
        job = await queue.add("n")
        async with client.get(f"{url}/{job.id}") as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert response.headers["Cache-Control"] == "no-cache, no-transform"
            assert await next_event(response) == {"id": "1-1", "data": json.dumps("first\nline")}
            gate.release()
            assert await events_of(response) == [{"id": "2-1", "data": '{"n": 2}'}, END]


async def test_a_browser_continues_after_the_last_event(
    queue: AnyQueue, service: Service, client: ClientSession
) -> None:
    async with worker_of(queue, words), service(queue) as url:
        job = await queue.add("n", ["a", "b", "c"])
        await job.result(10)
        async with client.get(f"{url}/{job.id}", headers={"Last-Event-ID": "2-1"}) as response:
            assert await events_of(response) == [{"id": "3-1", "data": '"c"'}, END]
        async with client.get(f"{url}/{job.id}", headers={"Last-Event-ID": "end"}) as response:
            assert (response.status, await response.read()) == (204, b"")
        async with client.get(f"{url}/{job.id}", headers={"Last-Event-ID": "x"}) as response:
            assert response.status == 400


async def test_a_forgotten_stream_is_gone(queue: AnyQueue, service: Service, client: ClientSession) -> None:
    limits = StreamLimits(ttl=0.001)
    async with worker_of(queue, words, stream_limits=limits), service(queue) as url:
        job = await queue.add("n", ["a"])
        await job.result(10)
        await asyncio.sleep(0.01)
        for job_id in (job.id, "nobody"):
            async with client.get(f"{url}/{job_id}") as response:
                assert response.status == 410
                assert "forgotten" in await response.text()


async def test_gaps_restarts_and_failures_are_events(queue: AnyQueue, service: Service, client: ClientSession) -> None:
    async def handler(job: AnyJob) -> None:
        for word in "abc":
            await job.stream(f"{word}{job.fence}")
        if job.fence == 1:
            raise ValueError("again")
        raise UnrecoverableError("secret words")

    job = await queue.add("n", attempts=3)
    async with worker_of(queue, handler, stream_limits=StreamLimits(max_chunks=4)), service(queue) as url:
        await until_failed(queue, job)
        async with client.get(f"{url}/{job.id}") as response:
            assert await events_of(response) == [
                {"id": "2-0", "event": "gap", "data": '{"missed": 2}'},
                {"id": "3-1", "data": '"c1"'},
                {"id": "3-1", "event": "restarted", "data": '{"run": 2}'},
                {"id": "4-2", "data": '"a2"'},
                {"id": "5-2", "data": '"b2"'},
                {"id": "6-2", "data": '"c2"'},
                {"id": "end", "event": "end", "data": '{"state": "failed"}'},
            ]


async def until_failed(queue: AnyQueue, job: AnyJob) -> None:
    async for update in job.watch():
        assert update.state != "completed"
    assert await queue.get_job(job.id) is not None


async def test_a_removed_job_ends_its_events(queue: AnyQueue, service: Service, client: ClientSession) -> None:
    job = await queue.add("n", delay=60)
    async with service(queue, heartbeat=0.05) as url, client.get(f"{url}/{job.id}") as response:
        assert await next_event(response) == {"comment": "keep-alive"}
        await job.remove()
        last = [event for event in await events_of(response) if "comment" not in event]
    assert last == [{"id": "end", "event": "end", "data": '{"state": "removed"}'}]


async def test_a_client_that_disconnects_ends_its_listener_and_not_the_job(
    queue: AnyQueue, service: Service, client: ClientSession
) -> None:
    gate = Gate()
    feeds = queue._client.tail._feeds  # pyright: ignore[reportPrivateUsage]
    async with worker_of(queue, gate), service(queue) as url:
        job = await queue.add("n", 5)
        await gate.running()
        async with client.get(f"{url}/{job.id}") as response:
            assert response.status == 200
            await until(lambda: job.id in feeds)
            response.close()
        await until(lambda: not feeds)
        gate.release()
        assert await job.result(10) == 5


async def test_a_service_chooses_the_form_of_chunks(queue: AnyQueue, service: Service, client: ClientSession) -> None:
    async with worker_of(queue, words), service(queue, encode=str) as url:
        job = await queue.add("n", ["two\nlines", ""])
        await job.result(10)
        async with client.get(f"{url}/{job.id}") as response:
            text = await response.text()
    assert text.startswith("id: 1-1\ndata: two\ndata: lines\n\nid: 2-1\ndata: \n\n")


@pytest.mark.parametrize("heartbeat", [0, -1, "x"])
def test_a_heartbeat_is_checked(queue: AnyQueue, heartbeat: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="heartbeat"):
        stream_response(queue, "a", heartbeat=heartbeat)


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not next to the tests")
async def test_the_example_streams_and_stops(client: ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIDEMQ_URL", "memory://streamed-answer")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    example: Any = importlib.import_module("streamed_answer")

    async with example.mq, example.mq.worker(), uvicorn_server(example.app) as url:
        async with client.get(url) as page:
            assert "EventSource" in await page.text()
        async with client.post(f"{url}/answers", params={"question": "Why?"}) as asked:
            job_id = (await asked.json())["id"]
        async with client.get(f"{url}/answers/{job_id}") as response:
            first = await next_event(response)
            assert first == {"id": "1-1", "data": '"You "'}
            async with client.post(f"{url}/answers/{job_id}/stop") as stopped:
                assert await stopped.json() == {"stopped": True}
            events = await soon(events_of(response))
        assert events[-1] == {"id": "end", "event": "end", "data": '{"state": "failed"}'}
        assert len(events) < 40
        async with client.post(f"{url}/answers/{job_id}/stop") as stopped:
            assert await stopped.json() == {"stopped": False}
