"""Browsers get refusals as pages, other clients as problem documents; tokens log browsers in."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.applications import Starlette
from starlette.routing import Mount

from glidemq_async.ops.core import Ops
from glidemq_async.ops.tokens import Tokens
from glidemq_async.storage import Storage
from glidemq_async.web.app import operations_app, running
from glidemq_async.web.settings import Access, WebLimits
from tests.web.clients import client_of

pytestmark = pytest.mark.only_on("memory")
BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


async def test_a_browser_gets_a_page_and_a_program_a_document(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = operations_app(storage, limits=WebLimits(requests_per_second=0.01, burst=7))
    stranger = operations_app(storage)

    async def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    async with running(app), running(stranger), client_of(app) as client:
        monkeypatch.setattr(Ops, "server", broken)
        for path, status in (("/nowhere", 404), ("/queues/none", 404), ("/store", 500)):
            page = await client.get(path, headers=BROWSER)
            assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
            assert "<nav" in page.text
            document = await client.get(path)
            assert document.headers["content-type"] == "application/problem+json"
            assert document.json()["status"] == status
        assert (await client.get("/api/v1/me", headers=BROWSER)).status_code == 200
        for headers, kind in ((BROWSER, "text/html; charset=utf-8"), ({}, "application/problem+json")):
            refused = await client.get("/", headers=headers)
            assert (refused.status_code, refused.headers["content-type"]) == (429, kind)
            assert int(refused.headers["retry-after"]) >= 1
        async with client_of(stranger, address="10.0.0.1") as other:
            for headers, kind in ((BROWSER, "text/html; charset=utf-8"), ({}, "application/problem+json")):
                refused = await other.get("/", headers=headers)
                assert (refused.status_code, refused.headers["content-type"]) == (401, kind)
            api = await other.get("/api/v1/me", headers=BROWSER)
            assert api.headers["content-type"] == "application/problem+json"


async def test_a_browser_logs_in_with_a_token_and_out_again(storage: Storage) -> None:
    inner = operations_app(storage, access=Access())
    app = Starlette(routes=[Mount("/admin", inner)])
    async with Ops(storage) as ops, running(inner), client_of(app, address="10.0.0.1") as client:
        secret = await Tokens(ops).create("ada", "operator")
        refused = await client.get("/admin/jobs?filter=state:failed", headers=BROWSER)
        assert refused.status_code == 401
        [style] = re.findall(r'href="([^"]+\.css)"', refused.text)
        assert (await client.get(style)).status_code == 200
        assert 'action="/admin/log-in"' in refused.text
        target = "/admin/jobs?filter=state:failed"
        wrong = await client.post("/admin/log-in", data={"token": "guessed", "next": target})
        assert wrong.status_code == 401
        assert f'value="{target}"' in wrong.text
        foreign = await client.post("/admin/log-in", data={"token": secret}, headers={"Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 403
        reply = await client.post("/admin/log-in", data={"token": secret, "next": target})
        assert (reply.status_code, reply.headers["location"]) == (303, target)
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        page = await client.get(target, headers=BROWSER)
        assert page.status_code == 200
        token = re.findall(r'name="form_token" value="([^"]+)"', page.text)[0]
        assert (await client.post("/admin/log-out", data={"form_token": token})).status_code == 303
        assert (await client.get(target, headers=BROWSER)).status_code == 401


async def test_nobody_logs_in_where_tokens_are_not_accepted(storage: Storage) -> None:
    async with Ops(storage) as ops:
        secret = await Tokens(ops).create("ada", "admin")
        app = operations_app(storage, access=lambda _: None)
        async with running(app), client_of(app) as client:
            assert (await client.post("/log-in", data={"token": secret})).status_code == 401
            assert "log-in" not in (await client.get("/", headers=BROWSER)).text
