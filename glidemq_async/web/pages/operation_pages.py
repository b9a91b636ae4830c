"""The pages about bulk operations: preview, start, progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.errors import GlideMQError
from glidemq_async.ops.access import AccessDenied, Role
from glidemq_async.ops.bulk.documents import Operation, Preview
from glidemq_async.ops.errors import OperationNotFound, OperationRefused
from glidemq_async.web.context import checked_form, context_of, ops_of
from glidemq_async.web.pages.change_forms import BadField
from glidemq_async.web.pages.form_values import needed, seconds, value
from glidemq_async.web.pages.handling import see_other
from glidemq_async.web.pages.rendering import render, url_of
from glidemq_async.web.permitted_filters import narrowed_filter, permitted_filter, sees_operation
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
    return await _show_list(request, chosen=query.get("action", "retry"), text=query.get("filter", ""))


async def _show_list(
    request: Request,
    *,
    status: int = 200,
    chosen: str = "retry",
    argument: str = "",
    text: str = "",
    error: str = "",
    reason: str = "",
) -> Response:
    ops = ops_of(request)
    return render(
        request,
        "operations.html.j2",
        status=status,
        operations=[each for each in await ops.operations() if await sees_operation(context_of(request), ops, each)],
        actions=ACTIONS,
        chosen=chosen,
        argument=argument,
        text=text,
        error=error,
        reason=reason,
        runners=await ops.operation_workers(),
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
        return await _show_list(
            request,
            status=status_of(error),
            chosen=action,
            argument=form.get("argument", ""),
            text=text,
            error=str(error),
            reason=form.get("reason", ""),
        )
    return await _show_preview(request, found)


async def _show_preview(request: Request, found: Preview, *, status: int = 200, warning: str = "") -> Response:
    return render(
        request,
        "preview.html.j2",
        status=status,
        p=context_of(request).shown(found),
        verb=VERBS.get(found.action, found.action),
        warning=warning,
        runners=await ops_of(request).operation_workers(),
    )


async def start_operation(request: Request) -> Response:
    """Start an operation that was previewed. If it cannot be started with this ticket, show a new preview."""
    form = {name: str(value) for name, value in (await checked_form(request)).items()}
    ops = ops_of(request)
    try:
        found = await _permitted(request)
    except OperationNotFound as error:
        return await _show_list(request, status=404, error=str(error), text=form.get("filter", ""))
    context_of(request).require_role(_role(found.action))
    stop = _figure(form, "stop")
    try:
        await ops.start(
            found.id,
            form.get("ticket", ""),
            rate=_figure(form, "rate"),
            stop_if_failing=None if stop is None else stop / 100,
        )
    except OperationRefused as error:
        if "to" in found.arguments:
            context_of(request).require("operator", str(found.arguments["to"]))
        fresh = await ops.preview(found.action, found.filter, reason=found.reason, **found.arguments)
        return await _show_preview(request, fresh, status=409, warning=f"Nothing was started: {error}. This is one.")
    return see_other(request, url_of(request, f"operations/{found.id}"), "The operation runs in the background.")


async def show_operation(request: Request) -> Response:
    """Show the progress of an operation."""
    found = await _permitted(request)
    refused = sum(found.refused.values())
    left = max(0, found.count - found.done - refused)
    return render(
        request,
        "operation.html.j2",
        o=context_of(request).shown(found),
        refused=refused,
        left=left,
        verb=VERBS.get(found.action, found.action),
        runners=await ops_of(request).operation_workers(),
    )


async def _permitted(request: Request) -> Operation:
    """Return the operation of the path. Raises AccessDenied if its filter selects queues that the user may not see."""
    ops = ops_of(request)
    found = await ops.operation(str(request.path_params["operation"]))
    await permitted_filter(context_of(request), ops, found.filter)
    return found


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
