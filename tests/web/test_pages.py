"""Every page, by every role, without a browser: it renders, escapes every text, and works without scripts."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

import httpx2
from starlette.requests import HTTPConnection

from glidemq_async import GlideMQ, JobFailed
from glidemq_async.errors import JobNotFound
from glidemq_async.ops import Ops
from glidemq_async.ops.access import Identity
from glidemq_async.storage import Storage
from glidemq_async.stored.record import State
from glidemq_async.web import operations_app
from glidemq_async.web.app import running
from glidemq_async.web.pages.rendering import render
from glidemq_async.web.settings import Access
from tests.web.seed import fill, seeded_app

pytestmark = pytest.mark.only_on("memory")
ROLES = {
    "viewer": Identity("vera", "viewer"),
    "reader": Identity("rita", "viewer", payloads=True),
    "operator": Identity("otto", "operator"),
    "admin": Identity("ada", "admin", payloads=True),
    "scoped": Identity("sam", "operator", ("mail*",)),
}
LISTS = (
    "",
    "failures",
    "operations",
    "jobs",
    "queues",
    "workers",
    "workflows",
    "keys",
    "schedules",
    "alerts",
    "dead-letters",
    "store",
)
JOBS: dict[str, State] = {"mail": "failed", "reports": "key-waiting", "orders": "suspended"}
XSS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7*7 }}",
    "</textarea><svg/onload=alert(1)>",
    "\u202e\x1b[31mred",
)


def _authenticate(connection: HTTPConnection) -> Identity | None:
    return ROLES.get(connection.headers.get("x-user", "admin"))


@asynccontextmanager
async def served(mq: GlideMQ[Any], role: str = "admin", **settings: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client of the pages, who is logged in with a role."""
    app = operations_app(mq, access=Access(authenticate=_authenticate, tokens=False), **settings)
    transport = httpx2.ASGITransport(app=app)
    headers = {"x-user": role, "accept": "text/html"}
    async with running(app), httpx2.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        yield client


@pytest.fixture
async def seeded(storage: Storage) -> AsyncIterator[GlideMQ[Any]]:
    """An app with jobs in all states."""
    mq = seeded_app(storage)
    async with mq:
        await fill(mq)
        yield mq


@pytest.fixture
async def bare(storage: Storage) -> AsyncIterator[GlideMQ[Any]]:
    """An app without jobs."""
    mq: GlideMQ[Any] = GlideMQ(storage)
    async with mq:
        yield mq


def texts(page: str) -> str:
    """Return a page without its markup."""
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


async def test_every_page_renders_for_every_role(seeded: GlideMQ[Any]) -> None:
    ids = {queue: (await seeded.queue(queue).get_jobs(state))[0].id for queue, state in JOBS.items()}
    pages = [
        *LISTS,
        *(f"queues/{queue}" for queue in ids),
        *(f"queues/{queue}/jobs/{job}" for queue, job in ids.items()),
    ]
    for role in ROLES:
        async with served(seeded, role) as client:
            for path in pages:
                reply = await client.get(f"/{path}")
                allowed = role != "scoped" or path.partition("/")[2].partition("/")[0] in {"", "mail"} or "mail" in path
                if path == "store" and role == "scoped":
                    continue
                assert reply.status_code == (200 if allowed else 403), (role, path, texts(reply.text)[-300:])
                assert reply.text.count("<h1") == 1, path
                assert "Undefined" not in reply.text


async def test_empty_pages_teach(bare: GlideMQ[Any]) -> None:
    async with served(bare) as client:
        for path in LISTS:
            reply = await client.get(f"/{path}")
            assert reply.status_code == 200, path
        assert "glidemq add" in (await client.get("/")).text
        assert "glidemq worker" in (await client.get("/workers")).text
        assert 'href="/jobs?filter=state%3Afailed"' in (await client.get("/dead-letters")).text


async def test_the_overview_marks_changes_that_were_refused(bare: GlideMQ[Any]) -> None:
    async with served(bare) as client:
        async with Ops.of(bare) as ops:
            await bare.queue("mail").add("send")
            await ops.pause("mail")
            with pytest.raises(JobNotFound):
                await ops.revoke("mail", "999")
        recent = re.search(r'id="recent".*?</section>', (await client.get("/")).text, re.DOTALL)
        assert recent
        refused, paused = re.findall("<tr>.*?</tr>", recent[0], re.DOTALL)
        assert ("revoke" in refused, "error" in refused) == (True, True)
        assert ("pause" in paused, "error" in paused) == (True, False)


async def test_texts_of_jobs_are_escaped(bare: GlideMQ[Any]) -> None:
    queue = bare.queue("trap")
    for text in XSS:
        job = await queue.add(
            "name " + "".join(each for each in text if each.isprintable()),
            {f"argument {text}": text},
            key=f"key {text}" if text.isprintable() else None,
        )
        await queue.revoke(job.id, f"reason {text}" if text.isprintable() else None)
    bad = re.compile(r"<script>alert|<img src=x|<svg/onload|'\s*onmouseover='", re.IGNORECASE)
    async with served(bare) as client:
        jobs = [job.id for job in await queue.get_jobs("failed")]
        assert len(jobs) == len(XSS)
        paths = [*LISTS, "queues/trap", *(f"queues/trap/jobs/{job}" for job in jobs)]
        paths += [f"jobs?filter={quote(text)}" for text in XSS]
        paths += [f"change/pause?queue=trap&key={quote(text)}&job={quote(text)}" for text in XSS]
        for path in paths:
            reply = await client.get(f"/{path}")
            assert reply.status_code in {200, 400}, path
            assert not bad.search(reply.text), path
            assert "\x1b" not in reply.text


async def test_payloads_are_hidden_without_the_right(seeded: GlideMQ[Any]) -> None:
    job = (await seeded.queue("mail").get_jobs("failed", 0, 0))[0]
    path = f"/queues/mail/jobs/{job.id}"
    async with served(seeded, "reader") as client:
        assert "Your receipt" in texts((await client.get(path)).text)
    async with served(seeded, "operator") as client:
        page = texts((await client.get(path)).text)
        assert "Your receipt" not in page
        assert "payload:read" in page
        assert str(job.failed_reason) not in page


async def test_arguments_have_their_names(seeded: GlideMQ[Any]) -> None:
    job = (await seeded.queue("mail").get_jobs("failed", 0, 0))[0]
    async with served(seeded) as client:
        page = (await client.get(f"/queues/mail/jobs/{job.id}")).text
    assert "<dt>to</dt>" in page
    assert "<dt>subject</dt>" in page
    assert "<dt>k</dt>" not in page


def fields_of(page: str, action: str) -> dict[str, str]:
    """Return the fields of the form with this action."""
    form = next(each for each in re.findall(r"<form.*?</form>", page, re.DOTALL) if f'action="{action}"' in each)
    return {
        name: html.unescape(value)
        for name, value in re.findall(r'<(?:input|textarea|select)[^>]*name="([^"]+)"(?:[^>]*value="([^"]*)")?', form)
    }


async def test_a_queue_is_paused_and_resumed_without_scripts(seeded: GlideMQ[Any]) -> None:
    async with served(seeded, "operator") as client:
        page = await client.get("/change/pause?queue=mail", headers={"referer": "http://test/queues/mail"})
        assert "jobs wait" in texts(page.text)
        fields = fields_of(page.text, "/change/pause") | {"reason": "the relay is down"}
        assert not await seeded.queue("mail").is_paused()
        reply = await client.post("/change/pause", data=fields)
        assert reply.status_code == 303
        assert reply.headers["location"] == "/queues/mail"
        assert await seeded.queue("mail").is_paused()
        shown = await client.get("/queues/mail")
        assert "Queue mail is paused" in texts(shown.text)
        assert "Resume" in texts(shown.text)
        page = await client.get("/change/resume?queue=mail")
        await client.post("/change/resume", data=fields_of(page.text, "/change/resume"))
        assert not await seeded.queue("mail").is_paused()
    async with served(seeded) as client:
        audit = texts((await client.get("/audit")).text)
        assert "the relay is down" in audit
        assert "otto" in audit


async def test_a_failed_job_is_retried_without_scripts(seeded: GlideMQ[Any]) -> None:
    job = (await seeded.queue("mail").get_jobs("failed", 0, 0))[0]
    async with served(seeded) as client:
        page = await client.get(f"/queues/mail/jobs/{job.id}")
        [link] = re.findall(r'href="(/change/retry\?[^"]+)"', page.text)
        form = await client.get(html.unescape(link))
        reply = await client.post("/change/retry", data=fields_of(form.text, "/change/retry"))
        assert reply.status_code == 303
    assert await job.get_state() == "waiting"


async def test_a_bad_field_leaves_the_form_with_its_values(seeded: GlideMQ[Any]) -> None:
    async with served(seeded) as client:
        page = await client.get("/change/pause?queue=mail")
        fields = fields_of(page.text, "/change/pause") | {"note": "two words", "for": "soon"}
        reply = await client.post("/change/pause", data=fields)
        assert reply.status_code == 422
        assert "is no duration" in texts(reply.text)
        assert 'value="two words"' in reply.text
    assert not await seeded.queue("mail").is_paused()


async def test_a_queue_is_obliterated_only_if_its_name_was_typed(seeded: GlideMQ[Any]) -> None:
    async with served(seeded) as client:
        page = await client.get("/change/obliterate?queue=images")
        fields = fields_of(page.text, "/change/obliterate")
        reply = await client.post("/change/obliterate", data=fields | {"typed": "image"})
        assert reply.status_code == 422
        assert await seeded.queue("images").get_job_counts()


@pytest.mark.parametrize("role", ["viewer", "reader"])
async def test_a_viewer_changes_nothing(seeded: GlideMQ[Any], role: str) -> None:
    async with served(seeded, role) as client:
        assert "/change/" not in (await client.get("/queues/mail")).text
        for change in ("pause", "retry", "obliterate", "fire_schedule"):
            assert (await client.get(f"/change/{change}?queue=mail&job=1")).status_code == 403
            theme = await client.get("/")
            token = fields_of(theme.text, "/theme")["form_token"]
            reply = await client.post(f"/change/{change}", data={"queue": "mail", "job": "1", "form_token": token})
            assert reply.status_code == 403
    assert not await seeded.queue("mail").is_paused()


async def test_a_form_without_its_token_is_refused(seeded: GlideMQ[Any]) -> None:
    async with served(seeded) as client:
        await client.get("/")
        reply = await client.post("/change/pause", data={"queue": "mail", "form_token": "guessed"})
        assert reply.status_code == 403
    assert not await seeded.queue("mail").is_paused()


async def test_a_form_leads_to_no_other_site(seeded: GlideMQ[Any]) -> None:
    async with served(seeded) as client:
        page = await client.get("/")
        for target in ("https://evil.example/", "//evil.example/", "/\\evil.example"):
            fields = fields_of(page.text, "/theme") | {"theme": "dark", "next": target}
            reply = await client.post("/theme", data=fields)
            assert reply.status_code == 303
            assert reply.headers["location"] == "/"
        assert 'data-theme="dark"' in (await client.get("/")).text


async def test_a_mistake_in_a_filter_is_shown_at_its_place(bare: GlideMQ[Any]) -> None:
    async with served(bare) as client:
        reply = await client.get("/jobs?filter=stat:failed")
        assert reply.status_code == 400
        assert "state" in texts(reply.text)


async def test_unknown_things_have_a_page_that_says_the_next_step(bare: GlideMQ[Any]) -> None:
    async with served(bare) as client:
        for path in ("queues/nothing", "queues/nothing/jobs/1", "failures/abc", "change/nothing"):
            reply = await client.get(f"/{path}")
            assert reply.status_code == 404, path
            assert "<h1>" in reply.text


async def test_the_pages_work_below_a_path(seeded: GlideMQ[Any]) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = operations_app(seeded, access=Access(authenticate=_authenticate, tokens=False))
    outer = Starlette(routes=[Mount("/admin/queues", inner)])
    async with (
        running(inner),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=outer), base_url="http://test") as client,
    ):
        page = (await client.get("/admin/queues/")).text
        links = set(re.findall(r'(?:href|src|action)="([^"#]+)', page))
        assert all(link.startswith("/admin/queues") for link in links), links
        for link in sorted(links):
            if "/theme" not in link and "preview" not in link:
                assert (await client.get(html.unescape(link))).status_code == 200, link


async def test_a_group_of_failures_offers_retry_only_while_one_of_its_jobs_is_failed(bare: GlideMQ[Any]) -> None:
    broken = {"disk", "mail"}

    @bare.task(queue="work", name="visit")
    async def visit(place: str) -> None:
        if place in broken:
            raise OSError(place) if place == "disk" else ValueError(place)

    queue = bare.queue("work")
    async with bare.worker(), served(bare, "operator") as client:
        jobs = {place: await visit.add(place) for place in ("disk", "mail")}
        for job in jobs.values():
            with pytest.raises(JobFailed):
                await job.result(timeout=10)
        pages = {group.error_type: f"/failures/{group.fingerprint}" for group in await queue.get_failure_groups()}
        assert (await client.get("/failures")).text.count("Retry…") == 2
        for path in pages.values():
            assert (await client.get(path)).text.count("Retry…") == 1
        broken.clear()
        await jobs["disk"].retry()
        await jobs["disk"].result(timeout=10)
        assert (await client.get("/failures")).text.count("Retry…") == 1
        assert "Retry…" not in (await client.get(pages["OSError"])).text
        assert "Retry…" in (await client.get(pages["ValueError"])).text


async def test_open_pages_with_the_same_rights_share_one_rendering(
    seeded: GlideMQ[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []

    def counted(request: Any, template: str, **values: Any) -> Any:
        rendered.append(template)
        return render(request, template, **values)

    monkeypatch.setattr("glidemq_async.web.pages.failure_pages.render", counted)
    app = operations_app(seeded, access=Access(authenticate=_authenticate, tokens=False))
    async with running(app):
        pages: list[str] = []
        for role in ("admin", "admin", "operator"):
            headers = {"x-user": role, "accept": "text/html"}
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
                whole = await client.get("/failures")
                token = fields_of(whole.text, "/theme")["form_token"]
                fresh = await client.get("/failures", headers={"X-Refresh": "1"})
                assert fields_of(fresh.text, "/operations/preview")["form_token"] == token
                assert ("no answer from mx1" in fresh.text) is (role == "admin")
                pages.append(fresh.text.replace(token, ""))
        assert pages[0] == pages[1]
    assert len(rendered) == 3 + 2


async def test_read_only_pages_have_no_changes(seeded: GlideMQ[Any]) -> None:
    async with served(seeded, read_only=True) as client:
        page = (await client.get("/queues/mail")).text
        assert "/change/" not in page
        assert "read-only" in page
