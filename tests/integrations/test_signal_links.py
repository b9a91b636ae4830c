"""Signed links: only links of this application send a signal, before they expire, and once for each question."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientSession
from fastapi import FastAPI

from glidemq_async import Queue
from glidemq_async.integrations.fastapi import lifespan
from glidemq_async.integrations.signal_links import LinkRefused, SignalLinks
from glidemq_async.integrations.signal_pages import signal_link_app
from tests.integrations.test_streams import uvicorn_server
from tests.support.helpers import AnyJob, AnyQueue, worker_of

SECRET, OTHER = b"s" * 32, b"o" * 32


def token_of(link: str) -> str:
    return link.rpartition("/")[2]


@pytest.fixture
async def queue() -> AsyncGenerator[AnyQueue]:
    async with Queue[Any, Any]("orders", "memory://") as opened:
        yield opened


@pytest.fixture
async def client() -> AsyncGenerator[ClientSession]:
    async with ClientSession() as session:
        yield session
    await asyncio.sleep(0)


async def ask(client: ClientSession, method: str, url: str) -> tuple[int, str]:
    async with client.request(method, url) as response:
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert response.headers["Cache-Control"] == "no-store"
        return response.status, await response.text()


def test_a_link_carries_its_signal() -> None:
    links = SignalLinks(SECRET, "https://shop.example/answers/")
    link = links.link("orders", "7", "approved", {"by": "ada"}, question="order 7")
    assert link.startswith("https://shop.example/answers/")
    found = links.read(token_of(link))
    assert (found.queue, found.job_id, found.name, found.data) == ("orders", "7", "approved", {"by": "ada"})
    assert found.question == "order 7"
    assert links.read(token_of(links.link("q", "1", "a"))).question != links.read(token_of(link)).question


def test_secrets_can_be_replaced() -> None:
    old = SignalLinks(OTHER, "https://a").link("q", "1", "a")
    assert SignalLinks([SECRET, OTHER], "https://a").read(token_of(old)).name == "a"
    with pytest.raises(LinkRefused):
        SignalLinks(SECRET, "https://a").read(token_of(old))


def test_changed_links_are_refused() -> None:
    links = SignalLinks(SECRET, "https://a")
    token = token_of(links.link("q", "1", "rejected"))
    for position in range(len(token)):
        changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        with pytest.raises(LinkRefused) as refused:
            links.read(changed)
        assert not refused.value.expired
    forged = json.dumps(["q", "1", "approved", None, "x", 10**12]).encode() + b"\0" * 32
    for wrong in ("", "a", "é", token + "=", token * 100, base64.urlsafe_b64encode(forged).decode().rstrip("=")):
        with pytest.raises(LinkRefused):
            links.read(wrong)


def test_expired_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    links = SignalLinks(SECRET, "https://a")
    token = token_of(links.link("q", "1", "a", expires=timedelta(hours=1)))
    later = links.read(token).expires + 1
    monkeypatch.setattr("time.time", lambda: later)
    with pytest.raises(LinkRefused, match="has expired") as refused:
        links.read(token)
    assert refused.value.expired


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        SignalLinks(b"short", "https://a")
    for secret in ([], "text", [b"x" * 32, "text"]):
        with pytest.raises(TypeError):
            SignalLinks(secret, "https://a")  # type: ignore[arg-type]
    links = SignalLinks(SECRET, "https://a")
    with pytest.raises(ValueError, match="at most 8192"):
        links.link("q", "1", "a", "x" * 9_000)
    with pytest.raises(ValueError, match="expires"):
        links.link("q", "1", "a", expires=0)
    with pytest.raises(TypeError):
        links.link("q", "1", "a", object())


async def test_a_person_answers_a_job(queue: AnyQueue, client: ClientSession) -> None:
    async def approval(job: AnyJob) -> Any:
        if not job.signals:
            await job.suspend(signals=["approved", "rejected"])
        return [[one.name, one.data] for one in job.signals]

    app = FastAPI(lifespan=lifespan(queue.storage))
    async with worker_of(queue, approval), uvicorn_server(app) as url:
        links = SignalLinks(SECRET, f"{url}/answers")
        app.mount("/answers", signal_link_app(links))
        job = await queue.add("n")
        yes, no = (links.link("orders", job.id, name, question="order 7") for name in ("approved", "rejected"))
        status, text = await ask(client, "GET", yes)
        assert (status, "approved" in text, "<form method" in text) == (200, True, True)
        # A program that only opens the link sends nothing.
        assert await queue.get_mailbox(job.id) == []
        assert (await ask(client, "POST", yes))[0] == 200
        assert await job.result(10) == [["approved", None]]
        for link in (yes, no):
            status, text = await ask(client, "POST", link)
            assert (status, "no longer open" in text) == (410, True)
        waiting = await queue.add("n", delay=60)
        yes, no = (links.link("orders", waiting.id, name, question="order 8") for name in ("approved", "rejected"))
        assert (await ask(client, "POST", yes))[0] == 200
        for link in (yes, no):
            status, text = await ask(client, "POST", link)
            assert (status, "already answered" in text) == (410, True)
        assert [one.name for one in await queue.get_mailbox(waiting.id)] == ["approved"]
        assert (await ask(client, "POST", links.link("orders", "nope", "approved")))[0] == 404
        assert (await ask(client, "GET", yes[:-1] + ("A" if yes[-1] != "A" else "Q")))[0] == 400


async def test_the_text_of_a_page_is_escaped(queue: AnyQueue, client: ClientSession) -> None:
    app = FastAPI()
    async with uvicorn_server(app) as url:
        links = SignalLinks(SECRET, f"{url}/answers")
        app.mount("/answers", signal_link_app(links, queue=lambda _: queue, describe=lambda link: f"<{link.data}>"))
        status, text = await ask(client, "GET", links.link("orders", "1", "a", "<script>"))
        assert (status, "<script>" in text, "&lt;&lt;script&gt;&gt;" in text) == (200, False, True)
