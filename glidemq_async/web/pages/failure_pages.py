"""The pages about failures: groups of failures with the same cause, and one group."""

from __future__ import annotations

import json

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.queues.failures import FailureGroup
from glidemq_async.web.context import context_of, identity_of, ops_of
from glidemq_async.web.pages.rendering import render


async def show_failures(request: Request) -> Response:
    """Show the failure groups, the newest first."""
    identity = identity_of(request)
    groups = [group for group in await ops_of(request).failures() if identity.sees(group.queue)]
    failed = {(group.queue, group.fingerprint) for group in await ops_of(request).with_failed_jobs(groups)}
    return render(request, "failures.html.j2", groups=groups, failed=failed, group_filter=group_filter)


async def show_failure(request: Request) -> Response:
    """Show one failure group with its jobs. The query names the queue if the failure occurs in several."""
    ops, identity = ops_of(request), identity_of(request)
    found = await ops.failure(str(request.path_params["fingerprint"]))
    if not found:
        raise HTTPException(404, "There is no failure group with this fingerprint.")
    queue = request.query_params.get("queue", "")
    shown = [group for group in found if identity.sees(group.queue) and queue in {"", group.queue}]
    if not shown:
        context_of(request).require("viewer", queue or found[0].queue)
        raise HTTPException(404, f"Queue {queue} has no failure group with this fingerprint.")
    group = shown[0]
    others = [each for each in found if each is not group and identity.sees(each.queue)]
    page = await ops.find(group_filter(group), limit=20)
    # A page without jobs that has a cursor ended early, so later pages may have some.
    has_failed = bool(page.jobs) or page.cursor is not None
    return render(
        *(request, "failure.html.j2"),
        g=group,
        rows=page.jobs,
        has_failed=has_failed,
        others=others,
        group_filter=group_filter,
    )


def group_filter(group: FailureGroup) -> str:
    """Return the filter of the failed jobs of a group."""
    queue = json.dumps(str(group.queue), ensure_ascii=False)
    return f"queue:{queue} state:failed group:{group.fingerprint}"
