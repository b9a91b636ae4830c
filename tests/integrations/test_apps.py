"""Queues in web apps: opened with the lifespan, passed to endpoints, shared, and refused where none is open."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from aiohttp import ClientSession, web
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount

from glidemq_async import GlideMQ, JobOptions, Queue, QueueClosed, StorageUnavailable
from glidemq_async.integrations import aiohttp as ours
from glidemq_async.integrations.fastapi import QueueDependency, get_queue, lifespan
from glidemq_async.integrations.queues import AnyQueue, QueueOptions, Queues
from glidemq_async.storage import MemoryStorage, RedisStorage
from glidemq_async.tasks.app import core_of
from tests.support.servers import free_port

Emails = Annotated[AnyQueue, QueueDependency("emails", default_options=JobOptions(priority=3))]


async def post(app: Any, path: str, state: Any = None) -> tuple[int, Any]:
    """Send an app one POST request, as a server does; return the status and the JSON of the body."""
    sent: list[dict[str, Any]] = []
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [],
        "state": state or {},
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return int(sent[0]["status"]), json.loads(body)


def service(**options: Any) -> FastAPI:
    """An app with an endpoint of each kind."""
    app = FastAPI(lifespan=lifespan("memory://", **options))

    @app.post("/waits")
    async def waits(emails: Emails) -> str:
        return (await emails.add("welcome")).state

    @app.post("/blocks")
    def blocks(emails: Emails) -> str:
        job = emails.sync.add("welcome")
        return f"{job.state} {emails.sync.count()}"

    return app


async def test_coroutines_and_plain_endpoints_share_a_queue() -> None:
    app = service()
    async with app.router.lifespan_context(app) as state:
        assert await post(app, "/waits", state) == (200, "prioritized")
        assert await post(app, "/blocks", state) == (200, "prioritized 2")


async def test_the_apps_own_lifespan_is_kept() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def own(_app: FastAPI) -> AsyncGenerator[dict[str, str]]:
        steps.append("start")
        yield {"tenant": "acme"}
        steps.append("end")

    app = service(around=own)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        assert state["tenant"] == "acme"
        queue: AnyQueue = state["glidemq"].get("emails")
        await queue.add("welcome")
    assert steps == ["start", "end"]
    with pytest.raises(QueueClosed):
        await queue.add("welcome")


async def test_a_mounted_app_finds_the_queues_of_the_outer_one() -> None:
    inner = service()
    outer = Starlette(routes=[Mount("/api", app=inner)], lifespan=lifespan("memory://"))
    async with outer.router.lifespan_context(outer) as state:
        assert await post(outer, "/api/waits", state) == (200, "prioritized")


async def test_an_app_without_a_lifespan_reports_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match="lifespan=lifespan"):
        await post(service(), "/waits")
    with pytest.raises(RuntimeError, match="lifespan=lifespan"):
        get_queue(HTTPConnection({"type": "http"}), "emails")
    with pytest.raises(ValueError, match="queue"):
        QueueDependency("a{b}")


async def test_an_app_does_not_start_without_its_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisStorage, "_connect_timeout", 0.1)
    with pytest.raises(StorageUnavailable):
        async with Queues(f"redis://127.0.0.1:{free_port()}"):
            pass


async def test_queues_share_a_given_storage_and_leave_it_open() -> None:
    async with MemoryStorage() as storage:
        async with Queues(storage, prefix="shop") as queues:
            assert queues.get("a").storage is queues.get("b").storage is storage
            assert queues.get("a") is queues.get("a")
            await queues.get("a").add("n")
        with pytest.raises(RuntimeError, match="not open"):
            queues.get("a")
        async with queues, Queue[Any, Any]("a", storage, prefix="shop") as same:
            assert await same.count() == await queues.get("a").count() == 1


def test_a_queue_of_a_service_accepts_every_option() -> None:
    own = {"self", "name", "storage", "prefix", "timeout"}
    assert QueueOptions.__annotations__.keys() == inspect.signature(Queue.__init__).parameters.keys() - own


async def test_a_glidemq_app_opens_and_closes_inside_the_services_lifespan() -> None:
    mq = GlideMQ("memory://", queue="mail", default_options=JobOptions(priority=2))
    steps: list[str] = []

    @mq.task
    async def welcome(to: str) -> None: ...

    @mq.cron("0 3 * * *")
    async def nightly() -> None: ...

    @asynccontextmanager
    async def own(_app: FastAPI) -> AsyncGenerator[dict[str, str]]:
        steps.append(f"start, open: {core_of(mq).loop is not None}")
        yield {"tenant": "acme"}
        steps.append(f"end, open: {core_of(mq).loop is not None}")

    app = FastAPI(lifespan=lifespan(mq, around=own))

    @app.post("/welcome")
    async def adds() -> str:
        return (await welcome.add("ada")).state

    @app.post("/count")
    async def counts(mail: Annotated[AnyQueue, QueueDependency("mail")]) -> bool:
        return mail is mq.queue("mail") and await mail.count() == 1

    async with app.router.lifespan_context(app) as state:
        assert state is not None
        assert state["tenant"] == "acme"
        assert [found.id for found in await mq.queue("mail").get_job_schedulers()] == [nightly.name]
        assert await post(app, "/welcome", state) == (200, "prioritized")
        assert await post(app, "/count", state) == (200, True)
        with pytest.raises(TypeError, match="takes its options from the app; set mode"):
            state["glidemq"].get("mail", mode="keyed")
    assert steps == ["start, open: False", "end, open: False"]
    assert core_of(mq).loop is None
    with pytest.raises(TypeError, match="prefix"):
        Queues(mq, prefix="shop")


async def test_a_cleanup_context_opens_and_closes_a_glidemq_app() -> None:
    mq = GlideMQ("memory://", queue="mail")
    app = web.Application()
    app.cleanup_ctx.append(ours.queues_context(mq))
    runner = web.AppRunner(app)
    await runner.setup()
    assert core_of(mq).loop is not None
    assert app[ours.QUEUES].get("mail") is mq.queue("mail")
    await runner.cleanup()
    assert core_of(mq).loop is None


async def test_a_glidemq_app_that_cannot_open_is_left_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisStorage, "_connect_timeout", 0.1)
    queues = Queues(GlideMQ(f"redis://127.0.0.1:{free_port()}"))
    with pytest.raises(StorageUnavailable):
        await queues.__aenter__()
    with pytest.raises(RuntimeError, match="not open"):
        queues.get("mail")


async def test_aiohttp_apps_and_their_sub_apps_share_queues() -> None:
    async def add(request: web.Request) -> web.Response:
        job = await ours.get_queue(request, "emails").add("welcome")
        return web.json_response(job.outcome)

    inner = web.Application()
    inner.add_routes([web.post("/add", add)])
    app = web.Application()
    app.cleanup_ctx.append(ours.queues_context("memory://"))
    app.add_subapp("/api", inner)
    bare = web.Application()
    bare.add_routes([web.post("/add", add)])
    for one, path, status in ((app, "/api/add", 200), (bare, "/add", 500)):
        runner = web.AppRunner(one)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        async with ClientSession() as client, client.post(url) as answer:
            assert answer.status == status
        await runner.cleanup()
