"""Handlers of pages: an error becomes a page that says what to do next."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from glidemq_async.web.context import CONTEXT, context_of, new_form_token
from glidemq_async.web.pages.rendering import NOTICE_COOKIE, is_refresh, render, render_alone, root_of, theme_of, url_of
from glidemq_async.web.problems import Problem
from glidemq_async.web.settings import Access

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger(__name__)

_TOKEN_PLACE: Final = new_form_token()

_TITLES: Final = {
    400: "This request has a mistake",
    401: "You are not logged in",
    403: "You may not do this",
    404: "This is not here",
    405: "This is not here",
    409: "The state has changed",
    410: "This is gone",
    412: "The settings have changed",
    413: "This is too large",
    422: "This value cannot be used",
    429: "Too many requests",
    500: "This page has a defect",
    503: "The store does not answer",
}
_ADVICE: Final = {
    401: "Load this page again after you have logged in.",
    403: "An admin can give your account another role, or more queues.",
    404: "An ended job is removed by the retention of its queue. The lists of queues and jobs show what exists.",
    409: "Load the page again and look at the present state.",
    412: "Load the page again and look at the present state.",
    429: "Wait a moment. Open pages send requests too, so close some of them.",
    500: "The log of the server has the error.",
    503: "The jobs are safe in the store. Check that the server runs and that its URL is right: glidemq doctor.",
}


def page(handler: Handler) -> Handler:
    """Return a handler whose errors are shown as pages."""

    async def guarded(request: Request) -> Response:
        try:
            return await (_refreshed(handler, request) if is_refresh(request) else handler(request))
        except Exception as error:  # noqa: BLE001 - each becomes a response
            response = context_of(request).web.refusal(request, error)
            if response.status_code == 500:
                _log.exception("%s failed", request.url.path)
            return response

    return guarded


# An open page loads its new state again and again, and many browsers show the same page. What they get differs only in
# the token of their forms, so the page is rendered with another text in its place.
async def _refreshed(handler: Handler, request: Request) -> Response:
    context = context_of(request)
    own, context.form_token = context.form_token, _TOKEN_PLACE
    key = (context.identity, request.url.path, request.url.query, root_of(request), theme_of(request))

    async def make() -> bytes | None:
        response = await handler(request)
        return bytes(response.body) if response.status_code == 200 else None

    page = await context.web.shared_pages.get(key, context.web.pace / 2, make)
    context.form_token = own
    if page is None:
        return await handler(request)
    return HTMLResponse(page.replace(_TOKEN_PLACE.encode(), own.encode()))


def error_page(connection: HTTPConnection, problem: Problem, access: Access) -> Response:
    """Return the page of an error. A client that was not admitted gets it without the navigation."""
    request, status = Request(connection.scope), problem.status
    values: dict[str, object] = {
        "code": status,
        "title": _TITLES.get(status, "Something went wrong"),
        "text": problem.detail,
        "advice": _ADVICE.get(status, "Go back and try again."),
    }
    if CONTEXT in connection.scope:
        return render(request, "problem.html.j2", status=status, headers=problem.headers, **values)
    can_log_in = status == 401 and access.tokens
    return render_alone(request, "refused.html.j2", status, problem.headers, can_log_in=can_log_in, wrong="", **values)


def see_other(request: Request, target: str, notice: str = "") -> Response:
    """Return a redirect after a change. The next page shows `notice` once."""
    response = RedirectResponse(target, 303)
    if notice:
        response.set_cookie(
            NOTICE_COOKIE,
            quote(notice[:300]),
            max_age=30,
            path=root_of(request) or "/",
            httponly=True,
            samesite="strict",
        )
    return response


def own_target(request: Request, target: object, fallback: str = "") -> str:
    """Return an address of this app from a form. Others become the fallback, because a form must not lead elsewhere."""
    text = target if isinstance(target, str) else ""
    root = root_of(request)
    is_own = text.startswith(f"{root}/") and not text.startswith("//") and "\\" not in text and "\n" not in text
    return text if is_own else url_of(request, fallback)


def visible_queue(request: Request) -> str:
    """Return the queue of the path. Raises AccessDenied if the user may not see it."""
    name = str(request.path_params["queue"])
    context_of(request).require("viewer", name)
    return name
