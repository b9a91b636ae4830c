"""Job fields in log records: a context variable that is set during each run, a filter and a formatter."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from typing_extensions import override

from glidemq_async._internal.control_characters import escape_json
from glidemq_async.instrumentation import Instrumentation, RunJob, RunReport

__all__ = ["FIELDS", "JobFilter", "JobLogging", "JsonFormatter"]

#: The attributes that JobFilter puts on log records.
FIELDS: Final = ("queue", "job_id", "job_name", "attempt")


class _LogFields(NamedTuple):
    queue: str
    job_id: str
    job_name: str
    attempt: int


_current: ContextVar[_LogFields | None] = ContextVar("glidemq_job_fields", default=None)


class JobLogging(Instrumentation):
    """Makes the running job known to JobFilter, in the handler and in all tasks and threads that it starts."""

    @override
    def before_run(self, job: RunJob) -> object:
        """Note the job."""
        return _current.set(_LogFields(job.queue, job.id, job.name, job.attempts_made + 1))

    @override
    def after_run(self, token: Token[_LogFields | None], job: RunJob, report: RunReport) -> None:
        """Forget the job."""
        _current.reset(token)


class JobFilter(logging.Filter):
    """Adds `queue`, `job_id`, `job_name` and `attempt` to every record; outside of a run they are None.

    It also adds `trace_id` and `span_id` while an OpenTelemetry span is recorded. Add the filter to handlers, not to
    loggers: the filter of a logger does not see the records of its children. Existing attributes of a record are kept.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields. Every record passes."""
        fields = _current.get()
        for position, name in enumerate(FIELDS):
            # An application may set these fields itself with `extra=`, and the record of a child process already has
            # them.
            if not hasattr(record, name):
                setattr(record, name, None if fields is None else fields[position])
        if not hasattr(record, "span_id") and (ids := _span_ids()) is not None:
            record.trace_id, record.span_id = ids
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `ts` (RFC 3339, UTC, milliseconds), `level`, `logger`, `message`, the fields of
    JobFilter that are not None, everything given with `extra=`, and `exception` with the traceback.

    A value that JSON cannot represent is written as its repr.
    """

    def _traces(self, record: logging.LogRecord) -> dict[str, str]:
        traces: dict[str, str] = {}
        if record.exc_info:
            traces["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:  # the exception was raised in another process
            traces["exception"] = record.exc_text
        if record.stack_info:
            traces["stack"] = self.formatStack(record.stack_info)
        return traces

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "ts": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _USUAL and name not in line and value is not None:
                line[name] = value
        line |= self._traces(record)
        return escape_json(json.dumps(line, ensure_ascii=False, default=repr))


# The attributes of every record, and the ones that other formatters add to it.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _span_ids() -> tuple[str, str] | None:
    # A program without OpenTelemetry has no span, and the first log line must not import it.
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
