"""The pages about bulk operations: preview, start, progress."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.durations import parse_duration
from glidemq_async.web.context import checked_form, context_of
from glidemq_async.web.pages.changes import BadField
from glidemq_async.web.pages.handling import core, own_target, see_other
from glidemq_async.web.pages.rendering import render, url_of

ACTIONS: Final = (
    ("retry", "Retry"),
    ("cancel", "Cancel"),
    ("promote", "Start now"),
    ("delay", "Delay"),
    ("move", "Move to a queue"),
    ("delete", "Delete"),
)
_VERBS: Final = {
    "retry": "Retry",
    "cancel": "Cancel",
    "promote": "Start",
    "delay": "Delay",
    "move": "Move",
    "delete": "Delete",
}


async def show_operations(request: Request) -> Response:
    """Show the operations, and the form of a new one."""
    query = request.query_params
    return render(
        request,
        "operations.html.j2",
        operations=await core(request).operations(),
        actions=ACTIONS,
        chosen=query.get("action", "retry"),
        argument="",
        text=query.get("filter", ""),
    )


async def preview_operation(request: Request) -> Response:
    """Count the jobs that an operation would change. Nothing changes."""
    form = await checked_form(request)
    action = str(form.get("action", ""))
    context_of(request).require("admin" if action == "delete" else "operator")
    preview = await core(request).preview(
        action, str(form.get("filter", "")), reason=str(form.get("reason", "")), **_argument(action, form)
    )
    return render(request, "preview.html.j2", p=preview, verb=_VERBS.get(preview.action, preview.action.capitalize()))


async def start_operation(request: Request) -> Response:
    """Start an operation that was previewed."""
    form = await checked_form(request)
    context_of(request).require("operator")
    identifier = str(request.path_params["operation"])
    rate, stop = _figure(form, "rate"), _figure(form, "stop")
    await core(request).start(
        identifier, str(form.get("ticket", "")), rate=rate, stop_if_failing=None if stop is None else stop / 100
    )
    return see_other(request, url_of(request, f"operations/{identifier}"), "The operation runs in the background.")


async def show_operation(request: Request) -> Response:
    """Show the progress of an operation."""
    found = await core(request).operation(str(request.path_params["operation"]))
    refused = sum(found.refused.values())
    left = max(0, found.count - found.done - refused)
    return render(request, "operation.html.j2", o=found, refused=refused, left=left)


def _argument(action: str, form: dict[str, Any]) -> dict[str, Any]:
    text = str(form.get("argument", "")).strip()
    if action == "move":
        return {"to": text}
    if action == "delay":
        seconds = float(text) if text.isdigit() else parse_duration(text)
        if seconds is None:
            raise BadField("a delay is needed, for example 10m")
        return {"delay": seconds}
    return {}


def _figure(form: dict[str, Any], name: str) -> float | None:
    text = str(form.get(name, "")).strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise BadField(f"{text!r} is no number") from error


def target_of(request: Request, form: dict[str, Any]) -> str:
    """Return the page to which a form leads back."""
    return own_target(request, form.get("next"))
