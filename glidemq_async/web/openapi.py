"""The OpenAPI document, made from the route table and the models of requests and replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from glidemq_async.web.endpoints import ApiRoute
from glidemq_async.web.problems import MEDIA_TYPE

_REF: Final = "#/components/schemas/{model}"
_PART: Final = {
    "queue": "The name of a queue.",
    "job": "The id of a job. A slash in it is encoded as %2F.",
    "signal": "The name of a signal.",
    "key": "An ordering key.",
    "schedule": "The id of a job scheduler.",
    "setting": "The name of a setting.",
    "operation": "The id of a bulk operation.",
    "fingerprint": "The fingerprint of a group of failures.",
    "alert": "The name of an alert rule.",
}
_PROBLEM: Final = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "A URN that names the error."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The state, the cause and the remedy."},
        "queue": {"type": "string"},
    },
}
_HEADER: Final = r"^[\t -~]*$"
_KEY: Final = "^[ -~]*$"
_ERRORS: Final = {
    400: "The request cannot be read.",
    401: "The request has no valid credentials.",
    403: "The user lacks a right.",
    404: "The queue, the job or the path does not exist.",
    409: "The state of the queue or the job does not allow it.",
    410: "The stream is forgotten.",
    412: "The settings have changed since they were read.",
    413: "The body is too large.",
    415: "The body has another media type.",
    422: "A value is invalid.",
    429: "There are too many requests, or the queue is full.",
    503: "The store cannot be reached.",
}


def describe(endpoints: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of these endpoints."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "glidemq_async operations",
            "version": _version(),
            "description": "See and change the queues of a prefix, and add jobs from any language.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: ApiRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "x-role": endpoint.role,
        "x-payloads": endpoint.payloads,
        "parameters": _parameters(endpoint, schemas),
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.body is not None:
        reference = _schema(endpoint.body, schemas, "validation")
        content: dict[str, Any] = {"application/json": {"schema": reference}}
        if endpoint.ndjson:
            content["application/x-ndjson"] = {"schema": {"type": "string"}}
        described = endpoint.body.model_json_schema()
        required = "required" in described or "anyOf" in described
        found["requestBody"] = {"required": required, "content": content}
    return found


def _parameters(endpoint: ApiRoute, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PART[name],
            "schema": {"type": "string", "minLength": 1, "maxLength": 512},
        }
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    return [*parts, *_query(endpoint.query, schemas), *_headers(endpoint)]


def _query(model: type[BaseModel] | None, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if model is None:
        return []
    schema = model.model_json_schema(ref_template=_REF)
    schemas |= schema.pop("$defs", {})
    required = schema.get("required", [])
    found: list[dict[str, Any]] = []
    properties: dict[str, dict[str, Any]] = schema["properties"]
    for name, each in properties.items():
        # A parameter that is not given has no value. It is never null.
        variants: list[dict[str, Any]] = each.pop("anyOf", [])
        kinds = [kind for kind in variants if kind.get("type") != "null"]
        shape: dict[str, Any] = {**(kinds[0] if kinds else {}), **each}
        shape.pop("title", None)
        if shape.get("default", ...) is None:
            del shape["default"]
        description = shape.pop("description", "")
        found.append(
            {"name": name, "in": "query", "required": name in required, "description": description, "schema": shape}
        )
    return found


def _headers(endpoint: ApiRoute) -> list[dict[str, Any]]:
    found: list[tuple[str, str]] = []
    if endpoint.method != "GET":
        found.append(("X-Reason", "The reason of the change, for the audit."))
    if endpoint.key:
        found.append(("Idempotency-Key", "A repeated request with the same key has no further effect for a day."))
    if endpoint.match:
        found.append(("If-Match", "The ETag of the version that you have read."))
    if endpoint.media == "text/event-stream":
        found.append(("Last-Event-ID", "The id of the last event that you have received."))
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            # An Idempotency-Key becomes a part of an id, which has no tabs.
            "schema": {"type": "string", "maxLength": 255, "pattern": _KEY if name == "Idempotency-Key" else _HEADER},
        }
        for name, text in found
    ]


def _responses(endpoint: ApiRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = {"description": "The reply."}
    if endpoint.media != "application/json":
        reply["content"] = {endpoint.media: {"schema": {"type": "string"}}}
    elif endpoint.result is not None:
        reply["content"] = {"application/json": {"schema": _schema(endpoint.result, schemas, "serialization")}}
    found: dict[str, Any] = {str(endpoint.status): reply}
    if endpoint.ndjson:
        found["200"] = {
            "description": "The job existed before; or the outcome of each line.",
            "content": {**reply["content"], "application/x-ndjson": {"schema": {"type": "string"}}},
        }
    if endpoint.media == "text/event-stream":
        found["204"] = {"description": "The stream has ended."}
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, text in _ERRORS.items():
        found[str(status)] = {"description": text, "content": content}
    return found


def _schema(kind: Any, schemas: dict[str, Any], mode: Any) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema(mode=mode, ref_template=_REF)
    schemas |= schema.pop("$defs", {})
    name = schema.get("title", "")
    if not name:
        return schema
    schemas[name] = schema
    return {"$ref": f"#/components/schemas/{name}"}


def _version() -> str:
    try:
        return version("glidemq-async")
    except PackageNotFoundError:
        return "0"
