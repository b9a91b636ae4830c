"""The pages about queues, their workers and their schedules."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.ops.overview import Overview, only
from glidemq_async.ops.queue_rows import QueueSummary, QueueWorker
from glidemq_async.ops.settings import Setting
from glidemq_async.ops.verdicts import BEHIND_SECONDS, judge
from glidemq_async.web.context import identity_of, ops_of
from glidemq_async.web.pages import formats
from glidemq_async.web.pages.handling import visible_queue
from glidemq_async.web.pages.looks import HEADLINES
from glidemq_async.web.pages.rendering import is_refresh, render

_FIRST: Final = 6
MOST_ROWS: Final = 25
"""Number of queues in the overview."""
PAGE: Final = 100
"""Number of queues on one page of the list of queues."""
_READY: Final = ("waiting", "prioritized", "key-waiting", "rate-limited")


async def show_overview(request: Request) -> Response:
    """Show whether the work is done in time, and otherwise the reasons."""
    view = await _overview(request)
    groups = [group for group in view.failures if identity_of(request).sees(group.queue)]
    running = sum(each.running for each in view.queues)
    slots = sum(each.slots for each in view.queues)
    series = (
        ("out", [point.completed for point in view.throughput]),
        ("failed", [point.failed for point in view.throughput]),
    )
    completed, failed = (sum(values) for _, values in series)
    return render(
        request,
        "overview.html.j2",
        view=view,
        rows=sorted(view.queues, key=_by_need)[:MOST_ROWS],
        headline=HEADLINES[view.verdict],
        totals=_totals(view.totals),
        running=running,
        slots=slots,
        series=series,
        chart_label=f"{completed} jobs completed and {failed} failed in the last hour",
        groups=groups[:_FIRST],
        late=[reason for reason in view.reasons if " schedule " in reason],
        changes=list(view.audit)[:_FIRST],
        **_of_queues(),
    )


async def show_queues(request: Request) -> Response:
    """Show the queues with their pauses, a page of them at a time."""
    view = await _overview(request)
    text = request.query_params.get("name", "").strip()
    found = [each for each in view.queues if text.lower() in each.name.lower()]
    number = request.query_params.get("page", "1")
    start = (int(number) - 1) * PAGE if number.isascii() and number.isdigit() and int(number) else 0
    return render(
        request,
        "queues.html.j2",
        view=view,
        rows=found[start : start + PAGE],
        found=len(found),
        start=start,
        following=start // PAGE + 2 if start + PAGE < len(found) else None,
        previous=start // PAGE if start else None,
        text=text,
        paused=[each for each in found if each.paused][:PAGE],
        **_of_queues(),
    )


def _by_need(queue: QueueSummary) -> tuple[object, ...]:
    """Return the sort key of a queue in the overview: first the queues that need an operator."""
    needs = judge([queue])[0] != "ok"
    return not needs, -(queue.oldest_waiting_seconds or 0.0), -queue.ready, -queue.out_rate, queue.name


async def show_queue(request: Request) -> Response:
    """Show one queue: its states, speed, settings, failures and workers."""
    name = visible_queue(request)
    ops = ops_of(request)
    detail = await ops.queue_detail(name)
    groups = await ops.failures(name)
    return render(
        request,
        "queue.html.j2",
        q=detail.summary,
        states=_totals(detail.summary.counts),
        behind=(detail.summary.oldest_waiting_seconds or 0) > BEHIND_SECONDS,
        settings=await ops.settings(name),
        groups=groups[:_FIRST],
        workers=detail.workers,
        **_of_queues(),
    )


async def show_workers(request: Request) -> Response:
    """Show the workers with their versions."""
    identity = identity_of(request)
    workers = [each for each in await ops_of(request).workers() if identity.sees(each.queue)]
    counts = Counter(_version(each) for each in workers)
    versions = [(name, count, count / len(workers)) for name, count in sorted(counts.items(), reverse=True)]
    shown = versions if any(name for name, _, _ in versions) else []
    return render(request, "workers.html.j2", workers=workers, versions=shown, **_of_queues())


async def show_schedules(request: Request) -> Response:
    """Show the schedules with their lateness."""
    identity = identity_of(request)
    rows = [each for each in await ops_of(request).schedules() if identity.sees(each.queue)]
    return render(request, "schedules.html.j2", schedules=rows)


async def _overview(request: Request) -> Overview:
    ops = ops_of(request)
    view: Overview = await (ops.recent_overview() if is_refresh(request) else ops.overview())
    identity = identity_of(request)
    return view if identity.sees_all else only(view, identity.visible([each.name for each in view.queues]))


def _totals(totals: dict[Any, int]) -> list[tuple[str, int]]:
    always = ("waiting", "active", "delayed", "failed", "completed")
    return [(state, count) for state, count in totals.items() if count or state in always]


def _version(worker: QueueWorker) -> str:
    return worker.version


def _waiting(queue: QueueSummary) -> int:
    return sum(queue.counts.get(state, 0) for state in _READY)


def _queue(worker: QueueWorker) -> str:
    return worker.queue


def _setting_name(setting: Setting) -> str:
    name = setting.name.replace("_", " ")
    return name if setting.key is None else f"{name} of {setting.key or 'every key'}"


def _setting_value(setting: Setting) -> str:
    return formats.DASH if setting.value is None else str(setting.value)


def _of_queues() -> dict[str, Any]:
    return {
        "waiting_of": _waiting,
        "worker_queue": _queue,
        "worker_version": _version,
        "setting_name": _setting_name,
        "setting_value": _setting_value,
    }
