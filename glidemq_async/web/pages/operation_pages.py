"""The pages about bulk operations: preview, start, progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.errors import GlideMQError
from glidemq_async.ops.access import AccessDenied, Role
from glidemq_async.ops.bulk.documents import Operation
from glidemq_async.web.context import checked_form, context_of, ops_of
from glidemq_async.web.pages.changes import BadField, needed, seconds, value
from glidemq_async.web.pages.handling import see_other
from glidemq_async.web.pages.rendering import render, url_of
from glidemq_async.web.permitted_filters import narrowed_filter, permitted_filter
from glidemq_async.web.problems import status_of

ACTIONS: Final = (
    ("retry", "Retry"),
    ("cancel", "Cancel"),
    ("promote", "Start now"),
    ("delay", "Delay"),
    ("move", "Move to a queue"),
    ("edit", "Edit and run again"),
    ("delete", "Delete"),
)
VERBS: Final = {
    "retry": "Retry",
    "cancel": "Cancel",
    "promote": "Start",
    "delay": "Delay",
    "move": "Move",
    "edit": "Edit",
    "delete": "Delete",
}


async def show_operations(request: Request) -> Response:
    """Show the operations, and the form of a new one."""
    query = request.query_params
    found = await ops_of(request).operations()
    return render(
        request,
        "operations.html.j2",
        operations=[each for each in found if await _may_see(request, each)],
        actions=ACTIONS,
        chosen=query.get("action", "retry"),
        argument="",
        text=query.get("filter", ""),
        error="",
        reason="",
    )


async def preview_operation(request: Request) -> Response:
    """Count the jobs that an operation would change. Nothing changes."""
    form = {name: str(value) for name, value in (await checked_form(request)).items()}
    action, text = form.get("action", ""), form.get("filter", "")
    context, ops = context_of(request), ops_of(request)
    context.require_role(_role(action))
    try:
        arguments = _arguments(action, form.get("argument", "").strip())
        if "to" in arguments:
            context.require("operator", str(arguments["to"]))
        wanted = await narrowed_filter(context, ops, text)
        if wanted is None:
            raise BadField("you see no queue, so no job can be selected")
        found = await ops.preview(action, wanted, reason=form.get("reason", ""), **arguments)
    except (AccessDenied, GlideMQError, ValueError, TypeError) as error:
        return render(
            request,
            "operations.html.j2",
            status=status_of(error),
            operations=[],
            actions=ACTIONS,
            chosen=action,
            argument=form.get("argument", ""),
            text=text,
            error=str(error),
            reason=form.get("reason", ""),
        )
    return render(request, "preview.html.j2", p=context.shown(found), verb=VERBS.get(action, action))


async def start_operation(request: Request) -> Response:
    """Start an operation that was previewed."""
    form = {name: str(value) for name, value in (await checked_form(request)).items()}
    found = await _permitted(request)
    context_of(request).require_role(_role(found.action))
    stop = _figure(form, "stop")
    await ops_of(request).start(
        found.id,
        form.get("ticket", ""),
        rate=_figure(form, "rate"),
        stop_if_failing=None if stop is None else stop / 100,
    )
    return see_other(request, url_of(request, f"operations/{found.id}"), "The operation runs in the background.")


async def show_operation(request: Request) -> Response:
    """Show the progress of an operation."""
    found = await _permitted(request)
    refused = sum(found.refused.values())
    left = max(0, found.count - found.done - refused)
    return render(
        request, "operation.html.j2", o=found, refused=refused, left=left, verb=VERBS.get(found.action, found.action)
    )


async def _permitted(request: Request) -> Operation:
    """Return the operation of the path. Raises AccessDenied if its filter selects queues that the user may not see."""
    ops = ops_of(request)
    found = await ops.operation(str(request.path_params["operation"]))
    await permitted_filter(context_of(request), ops, found.filter)
    return found


async def _may_see(request: Request, operation: Operation) -> bool:
    try:
        await permitted_filter(context_of(request), ops_of(request), operation.filter)
    except AccessDenied:
        return False
    return True


def _role(action: str) -> Role:
    return "admin" if action in {"delete", "edit"} else "operator"


def _arguments(action: str, text: str) -> dict[str, object]:
    if action == "move":
        return {"to": needed(text or None, "the queue, as the argument,")}
    if action == "delay":
        return {"delay": needed(seconds({"delay": text}, "delay"), "the delay, as the argument,")}
    if action == "edit":
        return {"data": needed(value({"data": text}, "data"), "the new data, as the argument,")}
    return {}


def _figure(form: Mapping[str, str], name: str) -> float | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise BadField(f"{text!r} is no number") from error
