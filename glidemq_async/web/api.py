"""The HTTP API: the route table, and the routes that serve it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from glidemq_async.web import (
    alert_endpoints,
    audit_endpoints,
    change_endpoints,
    event_endpoints,
    failure_endpoints,
    graph_endpoints,
    job_endpoints,
    producer_endpoints,
    queue_endpoints,
)
from glidemq_async.web.endpoints import ApiRoute, json_response, serve
from glidemq_async.web.openapi import describe
from glidemq_async.web.problems import problem_of

ENDPOINTS: Final[tuple[ApiRoute, ...]] = (
    *queue_endpoints.ENDPOINTS,
    *change_endpoints.ENDPOINTS,
    *job_endpoints.ENDPOINTS,
    *failure_endpoints.ENDPOINTS,
    *graph_endpoints.ENDPOINTS,
    *audit_endpoints.ENDPOINTS,
    *alert_endpoints.ENDPOINTS,
    *producer_endpoints.ENDPOINTS,
    *event_endpoints.ENDPOINTS,
)
"""The route table."""

DEFAULT_TOOLS: Final = (
    "getOverview",
    "getQueue",
    "getSettings",
    "listFailures",
    "findJobs",
    "getJob",
    "getJobHistory",
    "explainJob",
    "getOperation",
    "previewOperation",
    "startOperation",
    "cancelOperation",
)
"""The routes that language models get as tools by default.

A model reads the descriptions of all its tools in every turn, so the others must be asked for. Most of their content is
in replies of these too: the overview has the figures of all queues, the open episodes and the newest audit lines, and a
queue has its workers and schedules.
"""


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the API."""
    return describe(ENDPOINTS)


def api_app() -> ASGIApp:
    """Return the API as an ASGI app that is mounted below the gate."""
    return _WholeParts(Router(routes=_routes(), redirect_slashes=False, default=_not_found))


def _routes() -> Sequence[BaseRoute]:
    paths: dict[str, dict[str, ApiRoute]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [
        Route(
            _pattern(path), partial(_dispatch, methods), methods=[*methods, "HEAD"] if "GET" in methods else [*methods]
        )
        for path, methods in paths.items()
    ]
    return [Route("/openapi.json", _openapi, methods=["GET"]), *routes]


def _pattern(path: str) -> str:
    return path


async def _dispatch(methods: dict[str, ApiRoute], request: Request) -> Response:
    return await serve(methods["GET" if request.method == "HEAD" else request.method], request)


async def _openapi(request: Request) -> Response:
    document = openapi()
    base = request.scope.get("root_path", "")
    return json_response({**document, "servers": [{"url": base or "/"}]})


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await problem_of(not_served(Request(scope), 404))(scope, receive, send)


def not_served(request: Request, status: int, headers: Mapping[str, str] | None = None) -> HTTPException:
    """Return the error for a path or a method that does not exist."""
    return HTTPException(status, f"{request.method} {request.url.path} is not served here", headers)


# Names and ids may contain slashes, which a client encodes as %2F. Servers decode the path before the routes are
# compared, so such an id would become several parts of the path. Therefore the path is decoded again here. A character
# that no name and no id contains replaces the encoded slash, and `serve` puts the slash back.
class _WholeParts:
    """Decodes the path so that an encoded slash stays inside its part of the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        raw = scope.get("raw_path", b"").partition(b"?")[0]
        if re.search(rb"%2f", raw, re.IGNORECASE):
            scope = {**scope, "path": unquote(re.sub(rb"(?i)%2f", b"%1F", raw).decode("ascii", "replace"))}
        await self._app(scope, receive, send)
