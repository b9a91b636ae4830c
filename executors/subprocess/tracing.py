"""Passes the trace of a run to its process, so that spans in the process have the span of the run as parent.

This works only if both sides use OpenTelemetry. This module never imports it first.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, TypeAlias

Trace: TypeAlias = dict[str, str] | None
"""The fields of the program's propagator, such as traceparent and baggage; None: no trace."""

_FLUSH_MILLISECONDS: Final = 300
"""Less than the half second that idle processes of a stopping worker have to end."""

_log = logging.getLogger("glidemq_async.executors.subprocess")


def current_trace() -> Trace:
    """Return the trace of this context as text fields."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    try:
        from opentelemetry import propagate

        found: dict[str, str] = {}
        propagate.inject(found)
    except Exception:  # noqa: BLE001 - telemetry must not fail a job
        _log.exception("the trace of a job could not be read; its spans in the child process begin a new trace")
        return None
    return found or None


def adopt_trace(trace: Trace) -> None:
    """Set the trace in this context, if the code of the job has imported OpenTelemetry."""
    if trace is None or "opentelemetry.trace" not in sys.modules:
        return
    try:
        from opentelemetry import context, propagate

        context.attach(propagate.extract(trace, context=context.Context()))
    except Exception:  # noqa: BLE001 - telemetry must not fail a job
        _log.exception("the trace of a job could not be set; its spans in this process begin a new trace")


def flush_spans() -> None:
    """Export the spans of this process before it ends, because it runs no exit functions."""
    # A child ends with `os._exit`, because threads of handlers must not keep it alive. The exporter's own exit function
    # would therefore never run.
    if "opentelemetry.sdk.trace" not in sys.modules:
        return
    try:
        from opentelemetry import trace

        provider: Any = trace.get_tracer_provider()
        if hasattr(provider, "force_flush"):
            provider.force_flush(_FLUSH_MILLISECONDS)
    except Exception:  # noqa: BLE001 - telemetry must not keep a process from ending
        _log.exception("the spans of a process could not be exported")
