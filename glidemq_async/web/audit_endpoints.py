"""Endpoints that show and export the audit lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from glidemq_async.ops.audit import AuditPage
from glidemq_async.ops.documents import as_document
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.models import AuditQuery


async def audit(call: ApiCall) -> Reply:
    """Return a page of audit lines, the newest first."""
    page: AuditPage = await call.ops.audit.read(call.query.limit, call.query.cursor)
    headers: dict[str, str] = {}
    if page.cursor is not None and call.request is not None:
        headers["Link"] = f'<{call.request.url.include_query_params(cursor=page.cursor)}>; rel="next"'
    return Reply(call.context.shown(page), headers=headers)


async def export(call: ApiCall) -> Response:
    """Send all audit lines, one JSON object in each line."""
    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(_lines(call), media_type="application/x-ndjson", headers=headers)


async def _lines(call: ApiCall) -> AsyncIterator[str]:
    async for line in call.ops.audit.lines():
        yield json.dumps(as_document(call.context.shown(line)), ensure_ascii=False) + "\n"


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/audit",
        name="listAudit",
        summary="List the changes of queues and jobs, the newest first: who made them, when, and why.",
        handle=audit,
        query=AuditQuery,
        result=AuditPage,
        whole=True,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/audit/export",
        name="exportAudit",
        summary="Send all audit lines, one JSON object in each line.",
        handle=export,
        media="application/x-ndjson",
        whole=True,
    ),
)
