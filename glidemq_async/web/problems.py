"""Errors as problem documents (RFC 9457). Each error of the library has one status and one type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from glidemq_async import errors
from glidemq_async.ops.access import AccessDenied
from glidemq_async.ops.documents import as_document
from glidemq_async.ops.errors import NoSuchHold, OperationNotFound, OperationRefused, QueueNotFound, WrongTicket

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:glidemq:error:"

STATUSES: Final[Mapping[type[Exception], int]] = {
    errors.StorageUnavailable: 503,
    errors.EmbeddedServerMissing: 503,
    errors.QueueFull: 429,
    errors.QueueBusy: 409,
    errors.MailboxFull: 409,
    errors.DuplicateSignal: 409,
    errors.PayloadTooLarge: 413,
    errors.SerializationError: 422,
    errors.CodecError: 422,
    errors.JobNotFound: 404,
    errors.StreamForgotten: 410,
    errors.SchedulerNotFound: 404,
    errors.JobFailed: 424,
    errors.BatchFailed: 424,
    errors.JobStateError: 409,
    errors.ResultTimeout: 504,
    errors.LeaseLost: 409,
    errors.JournalFull: 409,
    errors.StepFailed: 424,
    errors.QueueClosed: 503,
    errors.WorkflowDiverged: 409,
    errors.WorkflowExists: 409,
    errors.CycleError: 422,
    errors.FilterError: 400,
    errors.IncompatibleQueueError: 409,
    errors.OldWorkersRunning: 409,
    errors.LibraryVersionError: 503,
    errors.UnsupportedDurability: 422,
    errors.UnknownTaskError: 422,
    errors.ExecutorError: 500,
    errors.HandlerError: 500,
    errors.PermissionDenied: 503,
    errors.UnrecoverableError: 500,
    errors.RetryLater: 500,
    errors.RateLimited: 500,
    errors.Postponed: 500,
    errors.Suspended: 500,
    errors.WaitingForChildren: 500,
    errors.ControlFlow: 500,
    errors.GlideMQError: 500,
    QueueNotFound: 404,
    NoSuchHold: 404,
    WrongTicket: 409,
    OperationNotFound: 404,
    OperationRefused: 409,
    AccessDenied: 403,
}
"""The status of each error. A subclass that is not listed has the one of its base."""

_SHOWN: Final = ("queue", "position", "path", "found", "to_do", "limit", "size", "running", "needed", "error_type")
"""Attributes of errors that the document shows. None of them contains a payload."""


class RequestError(Exception):
    """A request that is refused before the library is asked. `fields` are added to its document."""

    def __init__(self, status: int, slug: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})


def slug_of(kind: type[BaseException]) -> str:
    """Return the last part of the type of an error, for example `job-not-found`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error of the library, of a bad value (422), or of a defect (500)."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return 422 if isinstance(error, ValueError | TypeError) else 500


def problem_of(error: Exception) -> Response:
    """Return the response for an error."""
    if isinstance(error, RequestError):
        return problem(error.status, error.slug, error.detail, headers=error.headers)
    status = status_of(error)
    is_ours = isinstance(error, errors.GlideMQError)
    slug = slug_of(type(error)) if is_ours else "invalid-value" if status == 422 else "defect"
    detail = str(error) if is_ours or status == 422 else "the request met a defect of the server; its log has the error"
    fields = {name: as_document(value) for name in _SHOWN if (value := getattr(error, name, None)) is not None}
    headers = {"Retry-After": "1"} if status in {429, 503} else {}
    return problem(status, slug, detail, fields if is_ours else {}, headers=headers)


def problem(
    status: int,
    slug: str,
    detail: str,
    fields: Mapping[str, object] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem document."""
    document = {
        "type": TYPE_PREFIX + slug,
        "title": slug.replace("-", " "),
        "status": status,
        "detail": detail,
        **(fields or {}),
    }
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)
