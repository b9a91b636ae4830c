"""The pages in headless Chromium: live figures, dialogs, keyboard, accessibility, and pictures for the guide."""

from __future__ import annotations

import asyncio
import io
import os
import re
import warnings
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")
pytest.importorskip("playwright", reason="pip install playwright for the tests in a browser")

from playwright import async_api as playwright

from glidemq_async import GlideMQ, Queue
from glidemq_async.ops import Ops
from glidemq_async.ops.tokens import Tokens
from glidemq_async.storage import MemoryStorage, Storage
from glidemq_async.web.settings import Access
from tests.web.browser import ARGUMENTS, Complaints, chromium, serving
from tests.web.seed import fill, fill_an_hour, seeded_app

MISSING = "!!! no Chromium: install Debian's chromium, or set GLIDEMQ_TEST_CHROMIUM"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.only_on("memory"),
    pytest.mark.timeout(200),
    pytest.mark.skipif(chromium() is None, reason=MISSING),
]
# pyright does not know what these methods return.
expect: Any = playwright.expect
# Longer than a busy machine needs. Playwright's own limit is five seconds.
expect.set_options(timeout=30_000)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZES: dict[str, Any] = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
PATHS = {
    "overview": "/",
    "failures": "/failures",
    "operations": "/operations",
    "jobs": "/jobs?filter=state:failed",
    "queues": "/queues",
    "queue": "/queues/reports",
    "workers": "/workers",
    "workflows": "/workflows",
    "keys": "/keys",
    "schedules": "/schedules",
    "dead-letters": "/dead-letters",
    "store": "/store",
    "alerts": "/alerts",
    "audit": "/audit",
    "change": "/change/pause?queue=mail",
    "missing": "/queues/nothing",
}


@pytest.fixture
async def seeded(storage: Storage) -> AsyncIterator[GlideMQ[Any]]:
    """An app with jobs in all states, and a worker."""
    mq = seeded_app(storage)
    async with mq:
        await fill(mq)
        yield mq


@asynccontextmanager
async def browsing(
    mq: GlideMQ[Any], access: Access | None = None, **settings: Any
) -> AsyncGenerator[tuple[Any, str, Complaints]]:
    """Yield a page of a new browser, the address of the server, and the complaints."""
    async with serving(mq, access) as base, playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        context = await browser.new_context(viewport=SIZES["wide"], **settings)
        page = await context.new_page()
        complaints = Complaints()
        complaints.watch(page, base)
        try:
            yield page, base, complaints
        finally:
            await context.close()
            await browser.close()


async def _job_paths(mq: GlideMQ[Any]) -> dict[str, str]:
    failed = (await mq.queue("mail").get_jobs("failed", 0, 0))[0].id
    run = (await mq.queue("orders").get_jobs("suspended", 0, 0))[0].id
    return {"job": f"/queues/mail/jobs/{failed}", "run": f"/queues/orders/runs/{run}"}


# The folder of the checkout, which tracebacks contain.
LEAVE_OUT = """folder => document.querySelectorAll('pre').forEach(each => {
    each.textContent = each.textContent.replaceAll(folder + '/', '');
})"""
PICTURES = (
    ("overview", "overview", "wide", "light"),
    ("overview-dark", "overview", "wide", "dark"),
    ("overview-phone", "overview", "phone", "light"),
    ("failures", "failures", "wide", "light"),
    ("jobs", "jobs", "wide", "light"),
    ("job", "job", "wide", "light"),
    ("run", "run", "wide", "dark"),
    ("queue", "queue", "wide", "light"),
)
LOOKS = [(theme, size) for theme in ("light", "dark") for size in SIZES]


async def test_every_page_is_accessible(seeded: GlideMQ[Any]) -> None:
    paths = PATHS | await _job_paths(seeded)
    async with browsing(seeded, bypass_csp=True) as (page, base, complaints):
        for place, path in enumerate(paths.values()):
            await _scan(page, base + path, *LOOKS[place % len(LOOKS)])
        assert [each for each in complaints.found if "404" not in each] == []


@pytest.mark.slow
async def test_every_page_is_accessible_in_both_themes_and_sizes(seeded: GlideMQ[Any]) -> None:
    paths = PATHS | await _job_paths(seeded)
    async with browsing(seeded, bypass_csp=True) as (page, base, _):
        for theme, size in LOOKS:
            for path in paths.values():
                await _scan(page, base + path, theme, size)


async def _scan(page: Any, address: str, theme: str, size: str) -> None:
    """Check that a page has no serious violation of WCAG, and fits its window."""
    await page.emulate_media(color_scheme=theme)
    await page.set_viewport_size(SIZES[size])
    await page.goto(address)
    assert await page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], address
    await page.evaluate(AXE.read_text("utf-8"))
    found = await page.evaluate("async rules => (await axe.run({runOnly: rules})).violations", RULES)
    grave = [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]
    assert grave == [], (address, theme, size)


async def test_long_names_and_texts_fit_their_window(storage: Storage) -> None:
    name = "team-" + "name-of-a-queue-" * 10
    mq = seeded_app(storage)
    async with mq, Queue[Any, Any](name, storage) as queue, Ops(storage) as ops:
        job = await queue.add("task_" * 40, {"text": "y" * 4_000}, key="key" * 60)
        await queue.revoke(job.id, reason="x" * 300)
        await queue.add("task_" * 40, {"text": "y" * 4_000}, key="key" * 60)
        await queue.upsert_job_scheduler("schedule" * 30, every=90)
        await ops.pause_schedule(name, "schedule" * 30, note="note" * 100)
        await ops.pause(name, note="note" * 100)
        own = (f"/queues/{name}", f"/queues/{name}/jobs/{job.id}")
        async with browsing(mq) as (page, base, _):
            for path in (
                *own,
                *(PATHS[each] for each in ("overview", "queues", "failures", "schedules", "audit", "keys")),
            ):
                for size in SIZES.values():
                    await page.set_viewport_size(size)
                    await page.goto(base + path)
                    assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"], (path, size)


async def test_no_page_breaks_the_content_policy(seeded: GlideMQ[Any]) -> None:
    run = (await seeded.queue("orders").get_jobs("suspended", 0, 0))[0].id
    drawings = [f"/api/v1/queues/orders/jobs/{run}/{name}.svg" for name in ("graph", "waterfall")]
    paths = PATHS | await _job_paths(seeded)
    async with browsing(seeded) as (page, base, complaints):
        for path in [*paths.values(), *drawings]:
            await page.goto(base + path)
        # The drawing has its style sheet.
        assert await page.evaluate("getComputedStyle(document.documentElement).fontSize") == "12px"
        assert [each for each in complaints.found if "404" not in each] == []


async def test_limits_are_changed_in_a_dialog_and_an_operation_runs_from_its_preview(seeded: GlideMQ[Any]) -> None:
    async with browsing(seeded) as (page, base, complaints), Ops.of(seeded) as ops, ops.worker():
        await page.goto(base + "/queues/reports")
        await page.get_by_role("link", name="Limits").click()
        box = page.get_by_label("Jobs at the same time")
        assert await box.input_value() == "4"
        await box.fill("6")
        await page.get_by_role("button", name="Set the limits").click()
        await page.wait_for_selector("text=The limits of reports are set")
        assert await seeded.queue("reports").get_global_concurrency() == 6
        await page.goto(base + "/failures")
        await page.get_by_role("button", name="Retry").first.click()
        await page.get_by_role("button", name=re.compile(r"^Retry [0-9]+ jobs?$")).click()
        await expect(page.locator("#operation-state")).to_have_text("done")
        await expect(page.locator("#progress .big")).to_have_text("100 %")
        assert complaints.found == []


@pytest.mark.slow
async def test_a_token_logs_a_browser_in(seeded: GlideMQ[Any]) -> None:
    async with Ops.of(seeded) as ops, browsing(seeded, access=Access()) as (page, base, complaints):
        secret = await Tokens(ops).create("ada", "operator")
        await page.goto(base + "/queues/mail")
        await page.get_by_label("Access token").fill(secret)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h1:text-is('mail')")
        await page.wait_for_selector("#live[data-state=live]")
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_selector("text=You are not logged in")
        assert [each for each in complaints.found if "401" not in each] == []


async def test_figures_are_live_and_can_be_paused(seeded: GlideMQ[Any]) -> None:
    async with browsing(seeded) as (page, base, complaints):
        await page.goto(base)
        await page.wait_for_selector("#live[data-state=live]")
        row = page.locator("tr[data-row=mail] td").nth(1)
        assert await row.inner_text() == "0"
        await seeded.queue("mail").add("send_email", {"a": [], "k": {"to": "a", "subject": "b"}})
        await expect(row).to_have_text("1")
        await page.keyboard.press("p")
        await expect(page.locator("#live")).to_have_text("Paused")
        await seeded.queue("mail").add("send_email", {"a": [], "k": {"to": "a", "subject": "b"}})
        await asyncio.sleep(2.5)  # longer than the interval of the page, which must not change now
        await expect(row).to_have_text("1")
        await page.keyboard.press("p")
        await expect(row).to_have_text("2")
        assert complaints.found == []


async def test_a_queue_is_paused_in_a_dialog_with_the_keyboard(seeded: GlideMQ[Any]) -> None:
    async with browsing(seeded) as (page, base, complaints):
        await page.goto(base + "/queues/mail")
        await page.get_by_role("link", name="Pause", exact=True).focus()
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog[open]")
        await page.wait_for_function("document.activeElement.name === 'note'")
        await page.keyboard.press("Escape")
        assert not await seeded.queue("mail").is_paused()
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog[open]")
        await page.keyboard.type("the relay is down")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("text=Queue mail is paused")
        assert await seeded.queue("mail").is_paused()
        assert complaints.found == []


async def test_shortcuts_lead_to_pages(seeded: GlideMQ[Any]) -> None:
    async with browsing(seeded) as (page, base, complaints):
        await page.goto(base)
        for keys, path in (("gq", "/queues"), ("gj", "/jobs"), ("gf", "/failures"), ("go", "/")):
            for key in keys:
                await page.keyboard.press(key)
            await page.wait_for_url(base + path)
        await page.keyboard.press("?")
        await page.wait_for_selector("#help[open]")
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        await page.wait_for_url(re.compile("/jobs"))
        await page.wait_for_function("document.activeElement.id === 'filter'")
        await page.keyboard.type("state:failed name:charge_card")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile("filter="))
        assert await page.locator("tbody tr").count() == 3
        assert complaints.found == []


async def test_hostile_texts_run_nothing(storage: Storage) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage)
    async with mq:
        queue = mq.queue("trap")
        for text in (
            "<script>alert(1)</script>",
            "<img src=//evil.example/x onerror=alert(1)>",
            "<svg/onload=alert(1)>",
        ):
            job = await queue.add(text, {text: text}, key=text)
            await queue.revoke(job.id, text)
        async with browsing(mq) as (page, base, complaints):
            for path in (
                "/",
                "/jobs",
                "/keys",
                "/failures",
                "/queues/trap",
                "/queues/trap/jobs/1",
                "/queues/trap/jobs/2",
            ):
                await page.goto(base + path)
            assert complaints.found == []


async def _abort(route: Any) -> None:
    await route.abort()


@pytest.mark.slow
async def test_pages_are_polled_without_the_stream(seeded: GlideMQ[Any]) -> None:
    async with browsing(seeded) as (page, base, _):
        await page.route("**/api/v1/events**", _abort)
        await page.goto(base)
        await expect(page.locator("#live")).to_have_text("Polling every 5 s")


@pytest.mark.slow
async def test_pictures_of_the_guide() -> None:
    """Draw the pictures. `$GLIDEMQ_WRITE_IMAGES=1` stores them in docs/images."""
    async with MemoryStorage(testing=True) as storage:
        mq = seeded_app(storage)
        async with mq:
            await fill_an_hour(mq, storage)
            await fill(mq)
            paths = PATHS | await _job_paths(mq)
            async with (
                mq.worker(["mail", "billing", "images", "orders"], concurrency=8),
                browsing(mq) as (page, base, _),
            ):
                for name, path, size, theme in PICTURES:
                    await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                    await page.set_viewport_size(SIZES[size])
                    await page.goto(base + paths[path])
                    await page.evaluate("document.fonts.ready")
                    await page.evaluate(LEAVE_OUT, str(Path(__file__).parents[2]))
                    drawn = await page.screenshot(clip={"x": 0, "y": 0, **SIZES[size]})
                    assert len(drawn) > 10_000
                    if os.environ.get("GLIDEMQ_WRITE_IMAGES"):
                        _store(name, drawn)


def _store(name: str, drawn: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from PIL import Image  # type: ignore[import-not-found,unused-ignore]

        IMAGES.mkdir(exist_ok=True)
        picture = Image.open(io.BytesIO(drawn)).convert("RGB")
        picture.quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            IMAGES / f"dashboard-{name}.png", optimize=True
        )
