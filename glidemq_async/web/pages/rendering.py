"""Fills the templates. Every text is escaped; drawings are the only markup that does not come from a template."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from glidemq_async._internal.control_characters import escape
from glidemq_async.ops.change_kinds import CHANGE_KINDS
from glidemq_async.web.authentication import SESSION_COOKIE
from glidemq_async.web.context import context_of
from glidemq_async.web.pages import drawings, formats, looks
from glidemq_async.web.pages.static_files import STATIC_PATH, mark

THEMES: Final = ("auto", "light", "dark")
THEME_COOKIE: Final = "glidemq_theme"
NOTICE_COOKIE: Final = "glidemq_notice"
REFRESH_HEADER: Final = "X-Refresh"
COLLAPSED_AT: Final = 2048
"""Length of a payload in characters above which it is collapsed."""


@cache
def environment() -> Environment:
    """Return the templates with their filters and functions."""
    found = Environment(
        loader=PackageLoader("glidemq_async.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_shown,
    )
    found.filters.update(FILTERS)
    cast("dict[str, Any]", found.globals).update(FUNCTIONS)
    return found


def render(
    request: Request, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: object
) -> Response:
    """Return the page of a template."""
    text = environment().get_template(template).render(_common(request) | values)
    response = HTMLResponse(text.encode("utf-8", "replace"), status, dict(headers or {}))
    if NOTICE_COOKIE in request.cookies and not is_refresh(request):
        response.delete_cookie(NOTICE_COOKIE, path=root_of(request) or "/")
    return response


def render_alone(
    request: Request, template: str, status: int, headers: Mapping[str, str], **values: object
) -> Response:
    """Return the page of a template for a client that was not admitted, without the navigation."""
    text = environment().get_template(template).render(_outside(request) | values)
    return HTMLResponse(text.encode("utf-8", "replace"), status, dict(headers))


def is_refresh(request: Request) -> bool:
    """Return whether an open page loads its new state."""
    return request.method == "GET" and REFRESH_HEADER in request.headers


def root_of(request: Request) -> str:
    """Return the path at which the app is mounted, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def url_of(request: Request, path: str, **query: object) -> str:
    """Return the address of a page. Values that are empty are left out of the query."""
    given = {name: value for name, value in query.items() if value not in {None, ""}}
    return f"{root_of(request)}/{path}" + (f"?{urlencode(given)}" if given else "")


def _outside(request: Request) -> dict[str, object]:
    """Return the values that templates use, without the ones that need an identity."""
    root = root_of(request)

    def url(path: str, **query: object) -> str:
        return url_of(request, path, **query)

    def static(name: str) -> str:
        return f"{root}/{STATIC_PATH}/{name}"

    here = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    return {"here_url": here, "static": static, "theme": theme_of(request), "url": url}


def _common(request: Request) -> dict[str, object]:
    context = context_of(request)
    identity = context.identity
    root = root_of(request)
    here = request.url.path[len(root) :].strip("/").split("/")[0] if request.url.path.startswith(root) else ""

    def job_url(row: Any) -> str:
        return url_of(request, f"queues/{quote(row.queue, safe='')}/jobs/{quote(row.id, safe='')}")

    def may(change: str) -> bool:
        return identity.has(CHANGE_KINDS[change].role) and not context.web.read_only

    return _outside(request) | {
        "actor": identity.name,
        "events_url": f"{root}/api/v1/events",
        "form_token": context.form_token,
        "has_session": SESSION_COOKIE in request.cookies,
        "here": here,
        "is_dangerous": _is_dangerous,
        "job_url": job_url,
        "may": may,
        "may_operate": identity.has("operator") and not context.web.read_only,
        "navigation": looks.NAVIGATION,
        "notice": _notice(request),
        "now": datetime.now(UTC),
        "payloads": identity.payloads,
        "prefix": context.web.ops.prefix,
        "role": "read-only" if context.web.read_only else identity.role,
        "shortcuts": looks.SHORTCUTS,
    }


def theme_of(request: Request) -> str:
    """Return the theme that the user has chosen."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def _notice(request: Request) -> str:
    return "" if is_refresh(request) else unquote(request.cookies.get(NOTICE_COOKIE, ""))[:300]


def payload_view(text: str, is_long: bool) -> Markup:
    """Return a payload as a block, collapsed if it is long."""
    if not is_long:
        return Markup('<pre class="wrap">{}</pre>').format(visible(text))
    first = visible(text[:200]).replace("\n", " ")
    return Markup(
        '<details><summary class="small">{} characters: <span class="mono faint">{}…</span></summary>'
        '<pre class="wrap tall" tabindex="0">{}</pre></details>'
    ).format(formats.number(len(text)), first, visible(text))


def visible(text: str) -> str:
    """Return a text whose control characters are shown, except for line feeds and tabs."""
    return escape(text, keep="\n\t")


def _shown(value: object) -> object:
    """Return an output of a template. Texts of jobs can contain control characters, which would change its meaning."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hidden() -> Markup:
    return Markup(
        '<p class="muted">Hidden: your account lacks the right <code>payload:read</code>. An admin can grant it.</p>'
    )


def _actor_name(actor: Any) -> str:
    if actor is None:
        return ""
    return actor if isinstance(actor, str) else str(getattr(actor, "name", actor))


def _pause_text(pause: Any) -> str:
    note = (pause.note or "").strip().rstrip(".")
    parts = [f"Paused by {_actor_name(pause.by)}." if pause.by else "", f"{note}." if note else ""]
    parts.append(f"It ends at {formats.utc(pause.until)}." if pause.until else "It lasts until somebody resumes it.")
    return " ".join(part for part in parts if part)


def _log_line(line: Any) -> str:
    if isinstance(line, tuple | list):
        at, text = cast("tuple[object, object]", line)
        return f"{_clock(at)} {_plain(text)}" if isinstance(at, datetime) else _plain(text)
    return _plain(line)


def _is_dangerous(change: str) -> bool:
    return CHANGE_KINDS[change].is_dangerous


def argument_rows(data: object) -> list[tuple[str, str, bool]]:
    """Return the arguments of a job: name, text, and whether the text is long."""
    if data is None:
        return []
    named = cast("Mapping[object, object]", data) if isinstance(data, Mapping) else {"data": data}
    rows = [(str(name), value if isinstance(value, str) else formats.pretty(value)) for name, value in named.items()]
    return [(name, text, len(text) > COLLAPSED_AT) for name, text in rows]


def _clock(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%H:%M:%S")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _epoch(instant: datetime) -> int:
    return int(instant.timestamp())


def _number(value: float | None) -> Markup:
    return Markup('<span class="{}">{}</span>').format("" if value else "zero", formats.number(value))


def _operation_look(state: str) -> looks.Look:
    return looks.OPERATIONS.get(state, looks.OPERATIONS["previewed"])


def _part(text: object) -> str:
    return quote(str(text), safe="")


def _plain(text: object) -> str:
    return visible(str(text))


def _quoted(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ago": formats.ago,
    "clock": _clock,
    "cut": _cut,
    "duration": formats.duration,
    "epoch": _epoch,
    "iso": formats.iso,
    "number": formats.number,
    "part": _part,
    "percent": formats.percent,
    "plain": _plain,
    "quoted": _quoted,
    "rate": formats.rate,
    "size": formats.size,
    "utc": formats.utc,
}
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "actor_name": _actor_name,
    "chart": drawings.chart,
    "entry_look": looks.entry_look,
    "entry_title": looks.entry_title,
    "gate_look": looks.gate_look,
    "hidden": _hidden,
    "log_line": _log_line,
    "mark": mark,
    "meter": drawings.meter,
    "num": _number,
    "operation_look": _operation_look,
    "pause_text": _pause_text,
    "payload": payload_view,
    "schedule_state": looks.schedule_state,
    "spark": drawings.spark,
    "state_look": looks.state_look,
    "worker_state": looks.worker_state,
}
