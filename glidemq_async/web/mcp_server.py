"""An MCP server: routes of the HTTP API as tools for language models. Needs the extras `ui` and `mcp`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

try:
    from mcp import types
    from mcp.server import Server, ServerRequestContext
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install 'glidemq-async[ui,mcp]'") from error

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from glidemq_async.ops.access import Identity
from glidemq_async.web.api import DEFAULT_TOOLS, ENDPOINTS
from glidemq_async.web.context import RequestContext, context_of
from glidemq_async.web.endpoints import ApiCall, ApiRoute, allow, parse, run
from glidemq_async.web.problems import RequestError, problem_of
from glidemq_async.web.state import WebState

__all__ = ["McpEndpoint", "mcp_server", "serve_stdio", "tools"]

INSTRUCTIONS: Final = (
    "See the job queues of glidemq_async: start with getOverview. listFailures groups failures, and findJobs with "
    "group:<fingerprint> finds the jobs of a group. A change of jobs is a bulk operation: preview it, show the count "
    "to a person, and start it with the ticket of the preview only when the person agrees."
)

_REASON: Final = "reason"


def tools(*, allow_changes: bool = False, all_tools: bool = False) -> dict[str, ApiRoute]:
    """Return the routes that are offered as tools.

    Without `allow_changes` these are the ones that only read. Without `all_tools` they are among the twelve of
    `DEFAULT_TOOLS`.
    """
    permitted = {route.name: route for route in ENDPOINTS if route.tool and (allow_changes or route.method == "GET")}
    return permitted if all_tools else {name: permitted[name] for name in DEFAULT_TOOLS if name in permitted}


def mcp_server(context: RequestContext, *, allow_changes: bool = False, all_tools: bool = False) -> Server[Any]:
    """Return an MCP server for one user, with the tools that `tools` returns. In a read-only app the tools only read.

    The tools check the rights of the user, and their changes have audit lines with the source `mcp`.
    """
    offered = tools(allow_changes=allow_changes and not context.web.read_only, all_tools=all_tools)

    async def list_tools(_context: ServerRequestContext[Any], _page: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(route) for route in offered.values()])

    async def call_tool(
        _context: ServerRequestContext[Any], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        response = await _call(offered.get(asked.name), asked, context)
        text = bytes(response.body).decode()
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=response.status_code >= 400)

    return Server("glidemq", instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(web: WebState, identity: Identity, *, all_tools: bool = False) -> None:
    """Serve an MCP client over standard input and output until it disconnects.

    The tools that change something are offered unless the app is read-only.
    """
    server = mcp_server(RequestContext(web, identity, "", ""), allow_changes=True, all_tools=all_tools)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class McpEndpoint:
    """The MCP server of an operations app over HTTP (streamable HTTP). The gate of the app has authenticated the user.

    The server keeps no sessions, so any process behind a load balancer can reply to any request.
    """

    def __init__(self, *, allow_changes: bool, all_tools: bool) -> None:
        self._allow_changes, self._all_tools = allow_changes, all_tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        server = mcp_server(context_of(Request(scope)), allow_changes=self._allow_changes, all_tools=self._all_tools)
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def _tool(route: ApiRoute) -> types.Tool:
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    for name in _parts(route):
        properties[name] = {"type": "string"}
        required.append(name)
    for model in (route.query, route.body):
        if model is not None:
            schema = model.model_json_schema()
            properties |= schema.get("properties", {})
            required += schema.get("required", [])
            definitions |= schema.get("$defs", {})
    if route.method != "GET":
        properties.setdefault(_REASON, {"type": "string", "description": "Why, in one line. The audit stores it."})
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    hints = types.ToolAnnotations(read_only_hint=route.method == "GET", destructive_hint=route.name == "startOperation")
    return types.Tool(
        name=route.name,
        description=route.summary,
        input_schema={**schema, "$defs": definitions} if definitions else schema,
        annotations=hints,
    )


async def _call(route: ApiRoute | None, asked: types.CallToolRequestParams, context: RequestContext) -> Response:
    try:
        if route is None:
            raise RequestError(404, "no-such-tool", _why_not_offered(asked.name))
        given = dict(asked.arguments or {})
        path = {name: _text(given.pop(name, None), name) for name in _parts(route)}
        allow(route, context, path)
        query = _taken(route.query, given, "query")
        body = _taken(route.body, given, "body")
        headers = {} if route.method == "GET" else {"x-reason": str(given.pop(_REASON, ""))}
        if given:
            raise RequestError(422, "invalid-arguments", f"{next(iter(given))}: the tool has no such argument")
        return await run(route, ApiCall(path, query, body, Headers(headers), context, source="mcp"))
    except Exception as error:  # noqa: BLE001 - each becomes the result of the tool
        return problem_of(error)


def _why_not_offered(name: str) -> str:
    route = tools(allow_changes=True, all_tools=True).get(name)
    if route is None:
        return f"there is no tool {name!r}"
    option = "--all-tools" if route.method == "GET" else "--allow-changes (glidemq ui: --mcp change)"
    return f"the tool {name!r} is not offered; start the server with {option}"


def _taken(model: Any, given: dict[str, Any], what: str) -> Any:
    if model is None:
        return None
    take: Callable[[str], bool] = given.__contains__
    return parse(model, {name: given.pop(name) for name in model.model_fields if take(name)}, what)


def _parts(route: ApiRoute) -> list[str]:
    return re.findall(r"{(\w+)}", route.path)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(422, "invalid-arguments", f"{name}: the tool needs a text, got {json.dumps(value)}")
    return value
