"""The pages about jobs: the list with its filter, one job, runs of workflows, and ordering keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.errors import FilterError, GlideMQError
from glidemq_async.ops.core import Ops
from glidemq_async.ops.documents import as_document
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.ops.rows import JobDetail, JobRow
from glidemq_async.ops.search import JobPage
from glidemq_async.queues.explanation import Explanation
from glidemq_async.web.context import context_of, identity_of, ops_of
from glidemq_async.web.pages import formats
from glidemq_async.web.pages.handling import visible_queue
from glidemq_async.web.pages.rendering import argument_rows, render, url_of
from glidemq_async.web.permitted_filters import narrowed_filter
from glidemq_async.web.problems import status_of

PAGE: Final = 50
KEYED_JOBS: Final = 200
SAVED: Final = (
    ("All", ""),
    ("Failed", "state:failed"),
    ("Failed within 1 h", "state:failed ended:<1h"),
    ("Running", "state:active"),
    ("Delayed", "state:delayed"),
    ("Waits for a signal", "state:suspended"),
    ("Third attempt or later", "attempts:>=3"),
)
TERMS: Final = (
    ("state:failed,delayed", "jobs in one of these states"),
    ("name:resize*", "names that begin with resize"),
    ('error:"TimeoutError"', "a part of the error"),
    ("key:tenant-7", "jobs of an ordering key"),
    ("added:>1h", "added more than an hour ago; also started:, ended:, due:"),
    ("attempts:>=3", "a range of numbers; also stalls:, priority:"),
    ("data.to:*@example.com", "an argument by its name"),
    ("queue:mail*", "queues by their name"),
    ("-state:completed", "everything else"),
)
_STATES: Final = (
    ("Waiting for anything", "suspended,waiting-children"),
    ("Signals and timers", "suspended"),
    ("Other jobs", "waiting-children"),
)
_ENDED: Final = frozenset({"completed", "failed"})


async def show_jobs(request: Request) -> Response:
    """Show the jobs that a filter selects, over all queues."""
    text = request.query_params.get("filter", "")
    cursor = request.query_params.get("cursor") or None
    page, error, status = None, "", 200
    try:
        page = await _find(request, text, cursor)
    except (FilterError, QueueNotFound) as mistake:
        error, status = str(mistake), status_of(mistake)
    return render(
        request,
        "jobs.html.j2",
        status=status,
        text=text,
        page=page,
        error=error,
        saved=SAVED,
        terms=TERMS,
        paged=cursor is not None,
    )


async def show_job(request: Request) -> Response:
    """Show one job: its arguments, error, history, and why it does not run."""
    queue, job_id = visible_queue(request), str(request.path_params["job"])
    ops = ops_of(request)
    detail = await ops.job(queue, job_id)
    row = detail.row
    stored = await (await ops.queue(queue)).get_job(job_id)
    has_run = stored is not None and bool(await stored.get_steps())
    drawing = await _flow(ops, queue, job_id) if detail.parents or row.state == "waiting-children" else None
    return render(
        request,
        "job.html.j2",
        d=detail,
        row=row,
        ended=row.state in _ENDED,
        explanation=await _explanation(ops, row),
        arguments=argument_rows(detail.data),
        result_text=formats.pretty(detail.return_value if detail.return_value is not None else detail.progress),
        traces=[detail.stacktrace] if detail.stacktrace else [],
        options=[(name.replace("_", " "), _short(value)) for name, value in _options(detail).items()],
        links=_links(request, detail, has_run),
        job_acts=_actions(row.state),
        history=await ops.history(queue, job_id),
        fall=None,
        drawing=drawing,
        drawing_title="Flow",
        raw=json.dumps(as_document(detail), ensure_ascii=False, indent=2) if identity_of(request).payloads else "",
    )


async def show_run(request: Request) -> Response:
    """Show a run of a workflow as a waterfall."""
    queue, job_id = visible_queue(request), str(request.path_params["job"])
    ops = ops_of(request)
    detail = await ops.job(queue, job_id)
    fall, drawing = await _waterfall(ops, queue, job_id)
    return render(
        request,
        "run.html.j2",
        row=detail.row,
        explanation=await _explanation(ops, detail.row),
        fall=fall,
        drawing=drawing,
        job_acts=_actions(detail.row.state),
    )


async def show_workflows(request: Request) -> Response:
    """Show the runs that wait for something."""
    chosen = request.query_params.get("state", _STATES[0][1])
    page = await _find(request, f"state:{chosen}", request.query_params.get("cursor") or None)
    return render(request, "workflows.html.j2", page=page, chosen=chosen, saved=_STATES)


async def show_keys(request: Request) -> Response:
    """Show the ordering keys of jobs that wait or run."""
    text = "key:* state:active,waiting,prioritized,key-waiting,rate-limited"
    page = await _find(request, text, None, limit=KEYED_JOBS)
    return render(request, "keys.html.j2", keys=_by_key(page.jobs), searched=len(page.jobs))


@dataclass(slots=True)
class _Key:
    queue: str
    key: str
    waiting: int = 0
    running: int = 0
    oldest: datetime | None = None
    total: int = 1


def _by_key(jobs: Sequence[JobRow]) -> list[_Key]:
    found: dict[tuple[str, str], _Key] = {}
    for job in jobs:
        if job.key is None or job.created_at is None:
            continue
        each = found.setdefault((job.queue, job.key), _Key(job.queue, job.key))
        if job.state == "active":
            each.running += 1
        else:
            each.waiting += 1
            each.oldest = min(each.oldest or job.created_at, job.created_at)
    total = max((each.waiting + each.running for each in found.values()), default=1)
    for each in found.values():
        each.total = total
    return sorted(found.values(), key=lambda each: (-each.running, -each.waiting, each.key))


async def _find(request: Request, text: str, cursor: str | None, limit: int = PAGE) -> JobPage:
    ops, context = ops_of(request), context_of(request)
    wanted = await narrowed_filter(context, ops, text)
    if wanted is None:
        return JobPage([], None, 0, datetime.now(UTC))
    found: JobPage = context.shown(await ops.find(wanted, limit=limit, cursor=cursor))
    return found


async def _explanation(ops: Ops, row: JobRow) -> Explanation | None:
    return None if row.state in _ENDED else await ops.explain(row.queue, row.id)


async def _flow(ops: Ops, queue: str, job_id: str) -> Markup | None:
    try:
        graph = await ops.flow_graph(queue, job_id)
    except GlideMQError:
        return None
    return Markup(graph.to_svg(styled=False))  # noqa: S704 - the drawing escapes its texts


async def _waterfall(ops: Ops, queue: str, job_id: str) -> tuple[Any, Markup | None]:
    try:
        fall = await ops.waterfall(queue, job_id)
    except GlideMQError:
        return None, None
    # The drawing escapes its texts; see ops.drawings.
    return fall, Markup(fall.to_svg(styled=False))  # noqa: S704


def _actions(state: str) -> list[tuple[str, str, str]]:
    if state == "failed":
        return [
            ("retry", "Retry", "retry"),
            ("edit_and_replay", "Edit and replay", "retry"),
            ("delete", "Delete", "cross"),
        ]
    if state == "completed":
        return [("delete", "Delete", "cross")]
    if state == "active":
        return [("revoke", "Cancel", "stop")]
    if state == "delayed":
        return [("promote", "Start now", "play"), ("delay", "Delay", "clock"), ("revoke", "Cancel", "stop")]
    if state in {"suspended", "waiting-children"}:
        return [("signal", "Send a signal", "signal"), ("revoke", "Cancel", "stop")]
    return [
        ("delay", "Delay", "clock"),
        ("change_priority", "Priority", "operations"),
        ("move", "Move", "next"),
        ("revoke", "Cancel", "stop"),
    ]


def _options(detail: JobDetail) -> dict[str, object]:
    documents = {name: as_document(value) for name, value in detail.options.items() if name != "key"}
    return {name: formats.option(name, value) for name, value in documents.items()}


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def _links(request: Request, detail: JobDetail, has_run: bool) -> list[tuple[str, str]]:
    row, links = detail.row, list[tuple[str, str]]()
    here = f"queues/{quote(row.queue, safe='')}/runs/{quote(row.id, safe='')}"
    if has_run:
        links.append(("Waterfall of the run", url_of(request, here)))
    for target in detail.parents:
        path = f"queues/{quote(target.queue, safe='')}/jobs/{quote(target.job_id, safe='')}"
        links.append((f"Parent {target.job_id}", url_of(request, path)))
    return links
