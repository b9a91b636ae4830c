"""Routes that make a change of the table of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from glidemq_async.ops.change_kinds import CHANGE_KINDS, changed_count, make_change
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Method, Reply
from glidemq_async.web.replies import Done

Arguments: TypeAlias = "Callable[[ApiCall], Mapping[str, Any]]"
"""Takes a request. Returns the arguments of its change."""


def no_arguments(_call: ApiCall) -> Mapping[str, Any]:
    """Return no arguments."""
    return {}


def change_route(
    operation: str,
    path: str,
    name: str,
    body: Any,
    arguments: Arguments = no_arguments,
    *,
    method: Method = "POST",
    action: str = "",
    part: str = "",
    match: bool = False,
) -> ApiRoute:
    """Return the route of a change. `part` is the part of the path that it changes, "" for the queue.

    Replies show the change as `action`, which is the last part of the path by default.
    """
    kind = CHANGE_KINDS[name]
    shown = action or path.rpartition("/")[2]

    async def handle(call: ApiCall) -> Reply:
        given = arguments(call)
        if name == "move":
            call.context.require(kind.role, given["to"])
        found = await make_change(call.ops, name, call.path, given, call.reason)
        count = 1 if part == "job" else changed_count(found)
        return Reply(Done(shown, call.path["queue"], call.path.get(part, ""), count))

    return ApiRoute(
        method=method,
        path=path,
        name=operation,
        summary=kind.summary,
        handle=handle,
        role=kind.role,
        body=body,
        result=Done,
        match=match,
    )
