"""Handlers of pages: an error becomes a page that says what to do next."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from glidemq_async.web.context import FormRefused, context_of
from glidemq_async.web.pages.rendering import NOTICE_COOKIE, render, root_of, url_of
from glidemq_async.web.problems import RequestError, status_of

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger(__name__)

_TITLES: Final = {
    400: "This request has a mistake",
    403: "You may not do this",
    404: "This is not here",
    409: "The state has changed",
    410: "This is gone",
    422: "This value cannot be used",
    429: "Too many requests",
    503: "The store does not answer",
}
_ADVICE: Final = {
    403: "An admin can give your account another role, or more queues.",
    404: "It may have been removed by the retention of its queue. Search for it in the list of jobs.",
    409: "Load the page again and look at the present state.",
    503: "The jobs are safe in the store. Check that the server runs and that its URL is right: glidemq doctor.",
}


def page(handler: Handler) -> Handler:
    """Return a handler whose errors are shown as pages."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except HTTPException as error:
            return problem_page(request, error.status_code, error.detail)
        except RequestError as error:
            return problem_page(request, error.status, error.detail)
        except FormRefused as error:
            return problem_page(request, 403, str(error))
        except Exception as error:  # noqa: BLE001 - each becomes a page
            status = status_of(error)
            if status == 500:
                _log.exception("%s failed", request.url.path)
                return problem_page(request, 500, "A defect of this page. The log of the server has the error.")
            return problem_page(request, status, str(error))

    return guarded


def problem_page(request: Request, status: int, text: str) -> Response:
    """Return the page of an error."""
    title = _TITLES.get(status, "Something went wrong")
    advice = _ADVICE.get(status, "Go back and try again.")
    return render(request, "problem.html.j2", status=status, code=status, title=title, text=text, advice=advice)


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
