"""Log in to the pages with an access token, and log out. The cookie of the session is the token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from glidemq_async.web.authentication import SESSION_COOKIE
from glidemq_async.web.context import checked_form
from glidemq_async.web.pages.handling import own_target, see_other
from glidemq_async.web.pages.rendering import render_alone, root_of
from glidemq_async.web.state import WebState


async def log_in(request: Request, web: WebState) -> Response:
    """Store a valid token in a cookie until the browser is closed, and lead to the page that was asked for."""
    form = await request.form()
    token, target = str(form.get("token", "")).strip(), own_target(request, form.get("next"))
    if not token or await web.tokens.identity(token) is None:
        return _refused(request, target)
    response = RedirectResponse(target, 303)
    response.set_cookie(
        SESSION_COOKIE,
        token,
        path=root_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def log_out(request: Request) -> Response:
    """Forget the token of the browser."""
    await checked_form(request)
    response = see_other(request, own_target(request, None))
    response.delete_cookie(SESSION_COOKIE, path=root_of(request) or "/")
    return response


def _refused(request: Request, target: str) -> Response:
    return render_alone(
        request,
        "refused.html.j2",
        401,
        {},
        can_log_in=True,
        code=401,
        title="You are not logged in",
        text="",
        advice="",
        wrong="This token is not known, or it has expired or was revoked.",
        here_url=target,
    )
