"""The forms of changes: shown by GET, carried out by POST."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.errors import GlideMQError
from glidemq_async.ops.change_kinds import CHANGE_KINDS
from glidemq_async.ops.core import Ops
from glidemq_async.ops.errors import SettingsChanged
from glidemq_async.web.context import checked_form, context_of, ops_of
from glidemq_async.web.pages.change_forms import ChangeForm, FormField
from glidemq_async.web.pages.changes import CHANGES, run_change
from glidemq_async.web.pages.handling import own_target, see_other
from glidemq_async.web.pages.rendering import THEME_COOKIE, THEMES, render, root_of, url_of
from glidemq_async.web.problems import RequestError, status_of

_TARGETS: Final[tuple[str, ...]] = ("queue", "job", "key", "schedule", "worker", "operation", "name", "scope", "alert")
_TYPED: Final = FormField("typed", "Type the name of the queue", required=True)


async def show_change(request: Request) -> Response:
    """Show the form of a change. Nothing changes."""
    name, change = _change(request)
    target = {part: request.query_params[part] for part in _TARGETS if part in request.query_params}
    _require(request, name, target)
    try:
        return await _form(request, name, change, target, {}, "")
    except KeyError as missing:
        raise RequestError(404, "not-found", f"the address of this form names no {missing.args[0]}") from None


async def make_change(request: Request) -> Response:
    """Carry out a change, and lead back to the page that it was started from."""
    name, change = _change(request)
    form = {part: str(value) for part, value in (await checked_form(request)).items()}
    target = {part: form[part] for part in _TARGETS if part in form and not _is_field(change, part)}
    _require(request, name, target)
    if name == "move" and form.get("to"):
        context_of(request).require(CHANGE_KINDS[name].role, form["to"])
    ops = ops_of(request)
    try:
        if change.typed and form.get("typed", "") != target.get("queue"):
            raise ValueError("the name that was typed is not the name of the queue")
        notice = await run_change(ops, name, form)
    except (GlideMQError, ValueError, TypeError, KeyError) as error:
        # After a change by somebody else, the form begins again with the present values.
        given = {"next": form.get("next", "")} if isinstance(error, SettingsChanged) else form
        return await _form(request, name, change, target, given, str(error), status_of(error))
    return see_other(request, own_target(request, form.get("next")), notice)


async def choose_theme(request: Request) -> Response:
    """Store the theme in a cookie, so that the first paint of each page is right."""
    form = await checked_form(request)
    response = see_other(request, own_target(request, form.get("next")))
    if form.get("theme") in THEMES:
        path = root_of(request) or "/"
        response.set_cookie(
            THEME_COOKIE, str(form["theme"]), max_age=31_536_000, path=path, httponly=True, samesite="strict"
        )
    return response


def _change(request: Request) -> tuple[str, ChangeForm]:
    name = str(request.path_params["change"])
    if name not in CHANGES:
        raise HTTPException(404, "There is no such change.")
    return name, CHANGES[name]


def _is_field(change: ChangeForm, name: str) -> bool:
    return any(field.name == name for field in change.fields)


def _require(request: Request, name: str, target: Mapping[str, str]) -> None:
    context_of(request).require(CHANGE_KINDS[name].role, target.get("queue", ""))


async def _form(
    request: Request,
    name: str,
    change: ChangeForm,
    target: Mapping[str, str],
    given: Mapping[str, str],
    error: str,
    status: int = 200,
) -> Response:
    words = _words(target)
    values = {**await _present(request, name, change, target), **given}
    fields = [
        replace(each, value=values.get(each.name, each.value))
        for each in (*change.fields, *([_TYPED] if change.typed else ()))
    ]
    back = given.get("next") or request.headers.get("referer", "")
    return render(
        request,
        "confirm.html.j2",
        status=status,
        title=change.title.format_map(words),
        text=change.text.format_map(words),
        verb=change.verb,
        ticket=await _ticket(ops_of(request), name, target),
        facts=await _facts(ops_of(request), name, target),
        error=error,
        dangerous=CHANGE_KINDS[name].is_dangerous,
        action_url=url_of(request, f"change/{name}"),
        hidden_fields=list(target.items()),
        fields=fields,
        next_url=own_target(request, _path_of(request, back)),
    )


async def _ticket(ops: Ops, name: str, target: Mapping[str, str]) -> str:
    """Return the ticket of what the form shows. The server refuses it when the queue has changed much."""
    if name != "obliterate":
        return ""
    return str((await ops.preview_obliterate(target["queue"])).ticket)


async def _present(request: Request, name: str, change: ChangeForm, target: Mapping[str, str]) -> Mapping[str, str]:
    """Return the present values of the fields."""
    hides = name == "edit_and_replay" and not context_of(request).identity.payloads
    return {} if change.present is None or hides else await change.present(ops_of(request), target)


async def _facts(ops: Ops, name: str, target: Mapping[str, str]) -> list[str]:
    """Return the counted preview of a change that affects many jobs."""
    if name not in {"pause", "drain", "clean", "obliterate"} or not target.get("queue"):
        return []
    counts = await (await ops.queue(target["queue"])).get_job_counts()
    waiting = sum(counts[state] for state in ("waiting", "prioritized", "key-waiting", "rate-limited"))
    return {
        "pause": [f"{waiting:,} jobs wait, {counts['active']:,} run now."],
        "drain": [f"{waiting:,} waiting jobs will be deleted. Jobs that are added later stay."],
        "clean": [f"{counts['completed']:,} completed and {counts['failed']:,} failed jobs are stored now."],
        "obliterate": [f"{sum(counts.values()):,} jobs will be deleted, {counts['active']:,} of them run now."],
    }[name]


def _words(target: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that titles name by the fields of the form."""
    words = dict.fromkeys(_TARGETS, "") | dict(target)
    of_key = f" of key {words['key']}" if words["key"] else " of all keys" if words["scope"] else ""
    return words | {"setting": words["name"].replace("_", " ") + of_key}


def _path_of(request: Request, address: str) -> str:
    parts = urlsplit(address)
    if parts.netloc and parts.netloc != request.url.netloc:
        return ""
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
