"""The web app of the operations core: the HTTP API at `/api/v1` and the pages at `/`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias, cast, get_args

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Mount, Route
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install 'glidemq-async[ui]'") from error

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.ops.core import Ops
from glidemq_async.storage import StorageLike
from glidemq_async.tasks.app import GlideMQ
from glidemq_async.web.api import api_app, not_served
from glidemq_async.web.browsers import API_PATH
from glidemq_async.web.gate import RequestGate
from glidemq_async.web.settings import Access, Authenticate, WebLimits
from glidemq_async.web.state import GatePages, WebState

__all__ = ["operations_app", "running"]

McpTools: TypeAlias = Literal["none", "read", "change", "all"]
_PAGES: Final = "glidemq_async.web.pages.routes"


def operations_app(
    storage: StorageLike | GlideMQ[Any] = None,
    *,
    prefix: str = DEFAULT_PREFIX,
    access: Access | Authenticate | None = None,
    read_only: bool = False,
    limits: WebLimits | None = None,
    mcp: McpTools = "none",
    all_tools: bool = False,
) -> Starlette:
    """Return an ASGI app with the HTTP API at `/api/v1` and the pages at `/`.

    Mount it in FastAPI or Starlette, `app.mount("/queues", operations_app(mq))`, or serve it alone with `glidemq ui`.

    - `storage` is a GlideMQ app, or a URL or Storage as for Queue; `prefix` belongs to a URL or Storage.
    - `access` decides who may use it: an Access, or a function that returns the Identity of a request. Without it, only
      clients of this machine that use no proxy may, and they are admins.
    - `read_only` refuses every change, also of admins.
    - `limits` are the limits of requests.
    - `mcp` offers tools for language models at `/mcp`: "read" for nine tools that only read, "change" also for three
      that change jobs. `all_tools` adds the other tools that read; "all" is "change" with `all_tools`. The tools have
      the rights of the user, and in a read-only app they only read. Needs the extra `mcp`.

    The first request connects. A mounted app gets no lifespan events, so enter `running(app)` in the lifespan of the
    host application to close the connections at its end.
    """
    ops = Ops.of(storage) if isinstance(storage, GlideMQ) else Ops(storage, prefix=prefix)
    web = WebState(ops, _access(access), limits or WebLimits(), read_only=read_only)
    routes: list[BaseRoute] = [
        Mount(API_PATH, app=api_app()),
        *_mcp_routes(mcp, all_tools=all_tools),
        *_page_routes(web),
    ]

    async def refuse(request: Request, error: Exception) -> Response:
        status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
        return web.refusal(request, not_served(request, status, headers))

    app = Starlette(
        routes=routes,
        middleware=[Middleware(RequestGate, web)],
        lifespan=running,
        exception_handlers={404: refuse, 405: refuse},
    )
    app.state.web = web
    return app


@asynccontextmanager
async def running(app: Starlette) -> AsyncGenerator[None]:
    """Open an operations app, and close it at the end of the block.

    The app that is served alone does this in its own lifespan.
    """
    web = cast("WebState", app.state.web)
    await web.open()
    try:
        yield
    finally:
        await web.close()


def _access(given: Access | Authenticate | None) -> Access:
    if given is None:
        return Access(open_on_loopback=True)
    return given if isinstance(given, Access) else Access(authenticate=given, tokens=False)


def _mcp_routes(mcp: McpTools, *, all_tools: bool) -> Sequence[BaseRoute]:
    if mcp not in get_args(McpTools):
        raise ValueError(f"mcp must be 'none', 'read', 'change' or 'all', got {mcp!r}")
    if mcp == "none":
        if all_tools:
            raise ValueError("all_tools=True without tools: add mcp='read' or mcp='change'")
        return ()
    from glidemq_async.web.mcp_server import McpEndpoint  # imports the package mcp

    endpoint = McpEndpoint(allow_changes=mcp != "read", all_tools=all_tools or mcp == "all")
    return [Route("/mcp", endpoint, methods=["POST"])]


def _page_routes(web: WebState) -> Sequence[BaseRoute]:
    # The pages need Jinja, which the API does not need.
    if find_spec("jinja2") is None or find_spec("glidemq_async.web.pages") is None or find_spec(_PAGES) is None:
        return ()
    pages = import_module(_PAGES)
    web.pages = cast("Callable[[], GatePages]", pages.gate_pages)()
    return cast("Callable[[], Sequence[BaseRoute]]", pages.page_routes)()
