"""The endpoints of the HTTP API: what a row of the route table says, and how a request of it is served."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.ops.access import Identity, Role
from glidemq_async.ops.actor import Source
from glidemq_async.ops.core import Ops
from glidemq_async.ops.documents import as_document
from glidemq_async.web.context import RequestContext, context_of
from glidemq_async.web.problems import RequestError, problem_of

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Model = TypeVar("Model", bound=BaseModel)
SLASH: Final = "\x1f"
"""Stands for a slash inside a part of a path while routes are compared. No name and no id contains it."""
LONGEST_REASON: Final = 500

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of an endpoint: a value for `as_document`, and more headers."""

    value: object
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class ApiCall:
    """A request of an endpoint. `path` has the names and ids of its path, `query` and `body` are checked."""

    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    context: RequestContext
    source: Source = "http"
    request: Request | None = None

    @property
    def ops(self) -> Ops:
        """The operations core for the user of the request."""
        return self.context.ops(self.source)

    @property
    def identity(self) -> Identity:
        """The user of the request."""
        return self.context.identity

    @property
    def reason(self) -> str:
        """The reason of a change, for audit lines: the header X-Reason."""
        return self.headers.get("x-reason", "")[:LONGEST_REASON]


Handle: TypeAlias = Callable[[ApiCall], Awaitable["Reply | Response"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """A row of the route table.

    - `role` is the least role. `payloads` also requires the right to see payloads.
    - `query` and `body` are the models of the request, `result` is the type of the reply.
    - `media` is the type of the reply. A stream of events has no JSON.
    - `whole` requires the right to see every queue.
    - `key` accepts the header Idempotency-Key, `match` the header If-Match.
    - `tool` permits the endpoint as a tool for language models (MCP). `DEFAULT_TOOLS` names the ones that are offered
      by default.
    """

    method: Method
    path: str
    name: str
    summary: str
    handle: Handle
    role: Role = "viewer"
    payloads: bool = False
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    ndjson: bool = False
    result: Any = None
    status: int = 200
    media: str = "application/json"
    key: bool = False
    whole: bool = False
    match: bool = False
    tool: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names of the parts of the path."""
        return [
            part[1:-1].partition(":")[0] for part in self.path.replace(":", "/:").split("/") if part.startswith("{")
        ]


async def serve(endpoint: ApiRoute, request: Request) -> Response:
    """Serve a request of an endpoint. An error becomes a problem document."""
    try:
        path = {name: str(value).replace(SLASH, "/") for name, value in request.path_params.items()}
        context = context_of(request)
        allow(endpoint, context, path)
        body = await _body(endpoint, request)
        query = checked_query(endpoint, request)
        return await run(endpoint, ApiCall(path, query, body, request.headers, context, request=request))
    except Exception as error:  # noqa: BLE001 - each becomes a response
        response = problem_of(error)
        if response.status_code == 500:
            _log.exception("%s %s failed", endpoint.method, endpoint.path)
        return response


def allow(endpoint: ApiRoute, context: RequestContext, path: Mapping[str, str]) -> None:
    """Raise AccessDenied if the user may not use an endpoint. A path without a queue is checked by its handler."""
    queue = path.get("queue")
    if queue is not None:
        context.require(endpoint.role, queue, payloads=endpoint.payloads)
    else:
        context.require_role(endpoint.role, payloads=endpoint.payloads)
        if endpoint.whole:
            context.require(endpoint.role)


async def run(endpoint: ApiRoute, call: ApiCall) -> Response:
    """Call the handler of an endpoint, and return its response."""
    reply = await endpoint.handle(call)
    if isinstance(reply, Response):
        return reply
    return json_response(reply.value, reply.status or endpoint.status, reply.headers)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a response."""
    text = json.dumps(as_document(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(b"" if status == 204 else text, status, headers=dict(headers or {}), media_type="application/json")


async def _body(endpoint: ApiRoute, request: Request) -> Any:
    if endpoint.method in {"GET", "DELETE"} and endpoint.body is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if endpoint.ndjson and kind == "application/x-ndjson":
        return None  # the handler reads the lines one by one
    if endpoint.body is None:
        if await request.body():
            raise RequestError(422, "invalid-body", "this request takes no body; send none")
        return None
    return parse(endpoint.body, await _json(request, kind), "body")


async def _json(request: Request, kind: str) -> object:
    text = await request.body()
    if not text:
        return {}
    # Forms of other sites cannot send this type without the consent of this server.
    if kind != "application/json":
        raise RequestError(
            415, "unsupported-media-type", "send the body as application/json", {"Accept": "application/json"}
        )
    return parse_json(text)


def parse_json(text: bytes) -> object:
    """Return the value of JSON. Raises RequestError (400)."""
    try:
        return cast("object", json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "invalid-json", f"the body is no JSON: {error}") from None


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def parse(model: type[Model], value: object, what: str) -> Model:
    """Return a value as a model. Raises RequestError (422), which names the first wrong field."""
    try:
        return model.model_validate(value, strict=what == "body")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or what
        raise RequestError(422, f"invalid-{what}", f"{where}: {first['msg']}") from None


def checked_query(endpoint: ApiRoute, request: Request) -> Any:
    """Return the query of a request as the model of its endpoint. Raises RequestError."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) != len(pairs):
        raise RequestError(422, "invalid-query", "each parameter of the query may be given once")
    if endpoint.query is None:
        if given:
            raise RequestError(422, "invalid-query", f"{next(iter(given))}: this request takes no query")
        return None
    return parse(endpoint.query, given, "query")
