"""Errors as problem documents (RFC 9457). Each error of the library has one status and one type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from glidemq_async import errors
from glidemq_async.ops.access import AccessDenied
from glidemq_async.ops.alerts.webhooks import SignatureInvalid, WebhookRefused
from glidemq_async.ops.documents import as_document
from glidemq_async.ops.errors import (
    AlertNotFound,
    NoSuchHold,
    OperationNotFound,
    OperationRefused,
    QueueNotFound,
    SettingsChanged,
    TooManyAlerts,
    WrongTicket,
)

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
    errors.NoReply: 409,
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
    SettingsChanged: 412,
    WrongTicket: 409,
    OperationNotFound: 404,
    OperationRefused: 409,
    AccessDenied: 403,
    AlertNotFound: 404,
    TooManyAlerts: 409,
    WebhookRefused: 422,
    SignatureInvalid: 422,
}
"""The status of each error. A subclass that is not listed has the one of its base."""

_SHOWN: Final = ("queue", "position", "path", "found", "to_do", "limit", "size", "running", "needed", "error_type")
"""Attributes of errors that the document shows. None of them contains a payload."""


_OF_ROUTES: Final = {404: "not-found", 405: "method-not-allowed"}


class RequestError(Exception):
    """A request that is refused before the library is asked."""

    def __init__(self, status: int, slug: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})


class FormRefused(RequestError):
    """Raised for a form without the token of its page."""

    def __init__(self) -> None:
        super().__init__(403, "form-refused", "the form has no valid token; load the page again")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as it is shown to a client. `fields` are added to its document."""

    status: int
    slug: str
    detail: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def response(self) -> Response:
        """Return the problem document."""
        document = {
            "type": TYPE_PREFIX + self.slug,
            "title": self.slug.replace("-", " "),
            "status": self.status,
            "detail": self.detail,
            **self.fields,
        }
        text = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        return Response(text, self.status, headers=dict(self.headers), media_type=MEDIA_TYPE)


_DEFECT: Final = Problem(500, "defect", "the request met a defect of the server; its log has the error")


def slug_of(kind: type[BaseException]) -> str:
    """Return the last part of the type of an error, for example `job-not-found`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error of the library, of a bad value (422), or of a defect (500)."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return 422 if isinstance(error, ValueError | TypeError) else 500


def described(error: Exception) -> Problem:
    """Return an error as it is shown to a client."""
    if isinstance(error, RequestError):
        return Problem(error.status, error.slug, error.detail, headers=error.headers)
    if isinstance(error, HTTPException):
        return Problem(
            error.status_code, _OF_ROUTES.get(error.status_code, "defect"), error.detail, headers=error.headers or {}
        )
    status = status_of(error)
    if not isinstance(error, errors.GlideMQError):
        return Problem(422, "invalid-value", str(error)) if status == 422 else _DEFECT
    fields = {name: as_document(value) for name in _SHOWN if (value := getattr(error, name, None)) is not None}
    headers = {"Retry-After": "1"} if status in {429, 503} else {}
    return Problem(status, slug_of(type(error)), str(error), fields, headers)


def problem_of(error: Exception) -> Response:
    """Return the problem document for an error."""
    return described(error).response()
