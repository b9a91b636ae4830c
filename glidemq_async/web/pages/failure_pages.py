"""The pages about failures: groups of failures with the same cause, and one group."""

from __future__ import annotations

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.web.context import context_of, identity_of
from glidemq_async.web.pages.handling import core
from glidemq_async.web.pages.rendering import render


async def show_failures(request: Request) -> Response:
    """Show the failure groups, the newest first."""
    identity = identity_of(request)
    groups = [group for group in await core(request).failures() if identity.sees(group.queue)]
    return render(request, "failures.html.j2", groups=groups, group_filter=group_filter)


async def show_failure(request: Request) -> Response:
    """Show one failure group with its jobs."""
    ops = core(request)
    group = await ops.failure(str(request.path_params["fingerprint"]))
    if group is None:
        raise HTTPException(404, "There is no failure group with this fingerprint.")
    context_of(request).require("viewer", group.queue)
    page = await ops.find(group_filter(group), limit=20)
    return render(request, "failure.html.j2", g=group, rows=page.jobs, group_filter=group_filter)


def group_filter(group: Any) -> str:
    """Return the filter of the failed jobs of a group."""
    queue = json.dumps(str(group.queue), ensure_ascii=False)
    return f"queue:{queue} state:failed group:{group.fingerprint}"
